"""Registers `unreliable:///path` with TensorFlow: files that are slow and fail at times."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import tensorflow as tf

SOURCE = Path(__file__).with_suffix(".cc")


@functools.cache
def register() -> None:
    """Compiles the plugin and registers it; once per process."""
    library = Path(tempfile.mkdtemp(prefix="unreliable_files_")) / "unreliable_files.so"
    subprocess.run(
        [
            *("g++", "-std=c++17", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(library)),
            *tf.sysconfig.get_compile_flags(),
            *tf.sysconfig.get_link_flags(),
        ],
        check=True,
    )
    tf.experimental.register_filesystem_plugin(str(library))
