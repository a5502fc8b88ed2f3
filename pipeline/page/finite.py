"""Numbers of the page: JSON without NaN and infinities, six significant digits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pipeline.common.json_types import JsonValue


def finite(value: Any) -> JsonValue:
    """Return a JSON value in which NaN and infinities are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value


def rounded(value: float) -> float:
    """Return a number with six significant digits, which no chart shows more of."""
    return float(f"{value:.6g}")
