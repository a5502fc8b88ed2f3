"""Text files that are whole or not there, whenever the process is killed."""

from __future__ import annotations

import os

import tensorflow as tf


def write_text(path: str, text: str) -> None:
    """Writes a file that takes the place of the one before in a moment; makes its folder.

    A kill leaves the file as it was, and `<path>.writing`, which the next write takes over. A
    symbolic link stays, and its target is replaced; a device or a FIFO is written to.
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
