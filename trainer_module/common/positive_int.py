"""Check counts from users: integers of at least 1, including NumPy's."""

from __future__ import annotations

import operator

from trainer_module.common.json_values import Json


def check_positive_int(name: str, value: Json) -> int:
    """Return the value as an int.

    Args:
        name: Name of the argument, for the error message.
        value: The value that the user gave, of any type.

    Raises:
        ValueError: The value is not an integer, or is below 1.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r}: use a whole number of at least 1.") from None
    if isinstance(value, bool) or number < 1:
        raise ValueError(f"{name}={value!r}: use at least 1.")
    return number
