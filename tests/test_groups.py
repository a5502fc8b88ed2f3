"""Tests that share what takes long to make run in one process: pytest-xdist's groups hold."""

from __future__ import annotations

import pytest


def test_a_file_is_a_group(request):
    """pytest-xdist passes the group in the test's name, and says nothing where that fails."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs pytest-xdist: `make test`")
    name, _, group = request.node.nodeid.partition("@")
    assert name.startswith(f"{group}::")
