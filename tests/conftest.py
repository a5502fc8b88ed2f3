"""What holds for every test: the environment that TensorFlow reads while it is imported."""

from __future__ import annotations

import os

import hypothesis
import pytest

# Before any test module imports TensorFlow: importing tensorflow_transform sets
# TF_USE_LEGACY_KERAS=1 where nothing is set, and `import keras` and tf.keras would then differ.
os.environ["TF_USE_LEGACY_KERAS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# A merge must not depend on the draw: CI takes the same examples each time, a developer new ones.
hypothesis.settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps tests that share a session's fixtures in one of pytest-xdist's processes."""
    for item in items:
        if "taxi" in getattr(item, "fixturenames", ()):
            group = "taxi"
        elif item.path.parent.name == "e2e":
            group = item.path.stem
        else:
            group = item.path.relative_to(item.config.rootpath).parts[1]
        item.add_marker(pytest.mark.xdist_group(group))
