r"""Texts with line breaks in vocabularies, whose files have one value per line.

`tft.vocabulary` drops a text that holds a newline or a carriage return, so it would be out of
vocabulary however frequent. Here such a text is written with `\n` and `\r`, and a backslash as
`\\` so that no two texts become one. The same operations run before the lookup, at serving too.
"""

from __future__ import annotations

import tensorflow as tf

_ESCAPES = ((r"\\", r"\\\\"), ("\n", r"\\n"), ("\r", r"\\r"))  # RE2: pattern, rewrite


def one_line(texts: tf.Tensor) -> tf.Tensor:
    """Return strings of any shape as they are in vocabulary files; one to one."""
    for pattern, rewrite in _ESCAPES:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return texts
