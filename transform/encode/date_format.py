"""Texts of dates in a format of the user's -> ISO 8601, as a tensor.

    directive  is                                    directive  is
    %Y         year, four digits                     %H         hour, 0 to 23
    %y         its last two: 69 is 1969, 68 is 2068  %I         hour, 1 to 12, with %p
    %m         month, 1 to 12                        %p         AM or PM
    %b, %B     its English name, short or whole      %M         minute
    %d         day                                   %S         second, with or without a fraction
    %%         a percent sign

They are those of Python's `strptime`; zeros before numbers may be left out where no digit follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import tensorflow as tf

from transform.spec.date_format import DIRECTIVES, MONTHS, directives

_TWO_DIGITS = r"\d{1,2}"
_PATTERNS: Mapping[str, str] = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "m": _TWO_DIGITS,
    "d": _TWO_DIGITS,
    "H": _TWO_DIGITS,
    "I": _TWO_DIGITS,
    "M": _TWO_DIGITS,
    "S": r"\d{1,2}(?:[.,]\d*)?",
    "b": "|".join(f"{name[:3]}(?:{name[3:]})?\\.?" for name in MONTHS),
    "B": "|".join(f"{name[:3]}(?:{name[3:]})?\\.?" for name in MONTHS),
    "p": r"[ap]\.?m\.?",
}
assert set(_PATTERNS) == set(DIRECTIVES)


def to_iso(texts: tf.Tensor, form: str) -> tf.Tensor:
    """Return `2013-05-06T17:30` for each text in the format, "" for the others.

    Whether the date exists is not asked: `calendar.of_text` does.

    Args:
        texts: string `[...]`.
        form: checked by `transform.spec.date_format`.
    """
    found = directives(form)
    pattern = "".join(
        f"({_PATTERNS[part[1]]})" if part != "%%" and part[0] == "%" else re.escape(part[-1])
        for part in re.findall(r"%.|[^%]", form)
    )
    pattern = rf"(?i)\s*{pattern}\s*"
    fits = tf.strings.regex_full_match(texts, pattern)

    def text_of(directive: str) -> tf.Tensor:
        group = found.index(directive) + 1
        return tf.strings.regex_replace(texts, f"^{pattern}$", rf"\{group}", replace_global=False)

    def number_of(directive: str, default: int = 0) -> tf.Tensor:
        if directive not in found:
            return tf.fill(tf.shape(texts), tf.constant(default, tf.int64))
        digits = tf.where(fits, text_of(directive), tf.constant("0"))
        return tf.strings.to_number(digits, tf.int64)

    if "Y" in found:
        year = number_of("Y")
    else:
        year = number_of("y")
        year += tf.where(year < 69, tf.constant(2000, tf.int64), tf.constant(1900, tf.int64))
    name = next((each for each in ("b", "B") if each in found), None)
    month = number_of("m") if name is None else _month(text_of(name))
    if "I" in found:
        twelve = number_of("I")
        after_noon = tf.strings.regex_full_match(text_of("p"), r"(?i)p.*")
        hour = twelve % 12 + tf.where(
            after_noon, tf.constant(12, tf.int64), tf.constant(0, tf.int64)
        )
        fits = tf.logical_and(fits, tf.logical_and(twelve >= 1, twelve <= 12))
    else:
        hour = number_of("H")
    fields = [
        tf.strings.as_string(value, width=width, fill="0")
        for value, width in (
            (year, 4),
            (month, 2),
            (number_of("d"), 2),
            (hour, 2),
            (number_of("M"), 2),
        )
    ]
    year_text, month_text, day_text, hour_text, minute_text = fields
    day = tf.strings.join([year_text, month_text, day_text], "-")
    iso = tf.strings.join([day, tf.strings.join([hour_text, minute_text], ":")], "T")
    return tf.where(fits, iso, tf.constant(""))


def _month(names: tf.Tensor) -> tf.Tensor:
    short = tf.strings.lower(tf.strings.substr(names, 0, 3))
    known = tf.constant([name[:3] for name in MONTHS])
    return tf.argmax(tf.cast(tf.equal(short[..., None], known), tf.int64), axis=-1) + 1
