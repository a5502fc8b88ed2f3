"""A block is read without TensorFlow: a spec is checked by records that make blocks."""

from __future__ import annotations

import subprocess
import sys


def test_records_and_blocks_load_no_tensorflow() -> None:
    code = (
        "import sys\n"
        "from transform.block import Block\n"
        "from transform.encode.table import ENCODERS\n"
        "from transform.scale.table import SCALERS\n"
        "from transform.resolve.against_schema import check_spec\n"
        "assert ENCODERS and SCALERS and 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
