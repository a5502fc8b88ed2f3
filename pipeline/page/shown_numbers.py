"""Numbers as a page shows them."""

from __future__ import annotations

import math

_ZERO = 1e-7  # what is nearer to 0 is shown as 0: float32 has no more digits beside 1
_NONE, _MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def short(value: float | None, digits: int = 4) -> str:
    """Return a number in some significant digits, or with an exponent."""
    if value is None:
        return _NONE
    if math.isinf(value):
        return "∞" if value > 0 else _MINUS + "∞"
    value = 0.0 if abs(value) < _ZERO else value
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"
    else:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", _MINUS)


def percent(share: float) -> str:
    """Return a share of 0 to 1 in percent."""
    if share == 0.0:
        return "0"
    return f"{share:.2%}" if share >= 1e-4 else "<0.01%"
