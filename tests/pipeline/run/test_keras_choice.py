"""What becomes of TF_USE_LEGACY_KERAS, which decides what `tf.keras` is for the whole process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("before", "after"), [(None, "0"), ("1", "1")])
def test_importing_pipeline_leaves_a_value_of_the_users_own(before, after):
    environment = {name: v for name, v in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    if before is not None:
        environment["TF_USE_LEGACY_KERAS"] = before
    code = "import os, pipeline; print(os.environ['TF_USE_LEGACY_KERAS'])"
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert printed.strip() == after
