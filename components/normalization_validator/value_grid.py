"""Where a column's values lie, on a grid that is the same for every split.

Two splits are compared on counts over equal bins. The bins follow float32 itself: a sign, an
exponent and five more bits, so that a bin is a 32nd of the value wide at any scale; what is nearer
to 0 than 2^-20 is one bin, and so is what is beyond 2^12 on either side. That resolves a normalised
column whatever its tails do to its range, and needs no second look at the data.
"""

from __future__ import annotations

import functools

import numpy as np

_MANTISSA_BITS = 5
_LEAST, _GREATEST = -20, 12  # exponents of 2
_DROPPED = 23 - _MANTISSA_BITS
_FIRST = (127 + _LEAST) << _MANTISSA_BITS
_SIDE = (_GREATEST - _LEAST) << _MANTISSA_BITS  # bins of either sign, and one beyond them
BINS = 2 * _SIDE + 3


def bin_of(x: np.ndarray) -> np.ndarray:
    """Return the bin of each finite value, from 0 to `BINS - 1`, in order of the values."""
    with np.errstate(over="ignore"):  # infinity has the last bin, as all large values
        bits = x.astype(np.float32, copy=False).view(np.uint32)
    return _bin_of_bits()[(bits >> _DROPPED).astype(np.intp)]


@functools.cache
def _bin_of_bits() -> np.ndarray:
    """Return the bin of each sign, exponent and mantissa that is cut to five bits."""
    signs, magnitudes = np.divmod(np.arange(2 ** (32 - _DROPPED)), 2 ** (31 - _DROPPED))
    magnitudes = np.clip(magnitudes - _FIRST + 1, 0, _SIDE + 1)
    return np.where(signs, -magnitudes, magnitudes) + _SIDE + 1


@functools.cache
def edges() -> np.ndarray:
    """Return float64 `[BINS + 1]`: bin i holds the values between edges i and i + 1."""
    bits = ((np.arange(_SIDE + 1) + _FIRST) << _DROPPED).astype(np.int32)
    positive = bits.view(np.float32).astype(np.float64)
    return np.concatenate([[-np.inf], -positive[::-1], positive, [np.inf]])
