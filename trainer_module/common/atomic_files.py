"""Text files that are never half written, even if the process is killed."""

from __future__ import annotations

import os

import tensorflow as tf


def atomic_write_text(path: str, text: str) -> None:
    """Replace a file atomically; create its folder.

    A kill leaves the old file and `<path>.writing`, which the next write overwrites. A symbolic
    link stays and its target is replaced; a device or a FIFO is written to.
    """
    if "://" not in path:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
            return
        path = os.path.realpath(path)
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    with tf.io.gfile.GFile(f"{path}.writing", "w") as stream:
        stream.write(text)
    tf.io.gfile.rename(f"{path}.writing", path, overwrite=True)
