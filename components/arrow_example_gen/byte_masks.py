"""Positions of bytes in a text as packed bits, so that one NumPy operation covers 64 bytes.

A mask is uint64 `[ceil(bytes / 64)]`: bit i of word w is byte 64 w + i. Bits behind the text are 0.
"""

from __future__ import annotations

import numpy as np

_ONE, _TOP = np.uint64(1), np.uint64(63)


def find_bytes(codes: np.ndarray, wanted: bytes) -> np.ndarray:
    """Return the mask of the bytes that are one of those wanted.

    Args:
        codes: uint8 `[bytes]`.
        wanted: single bytes.
    """
    found = codes == wanted[0]
    for code in wanted[1:]:
        found |= codes == code
    packed = np.zeros(-(-len(codes) // 64) * 8, np.uint8)
    packed[: -(-len(codes) // 8)] = np.packbits(found, bitorder="little")
    return packed.view("<u8")


def prefix_xor(mask: np.ndarray) -> np.ndarray:
    """Return a mask whose bit i is the XOR of the bits 0 to i; it continues behind the text."""
    found = mask.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        found ^= found << np.uint64(shift)
    is_odd = np.bitwise_xor.accumulate(found >> _TOP)
    found[1:] ^= np.uint64(0) - is_odd[:-1]  # all bits of the words that follow an odd number
    return found


def shift_by_one(mask: np.ndarray) -> np.ndarray:
    """Return the mask moved to the next byte, with the first byte set."""
    found = mask << _ONE
    found[1:] |= mask[:-1] >> _TOP
    found[0] |= _ONE
    return found


def count_bits(mask: np.ndarray) -> int:
    """Return how many bits are set."""
    return int(np.count_nonzero(np.unpackbits(mask.view(np.uint8))))


def end_of_last(mask: np.ndarray) -> int:
    """Return the place behind the last bit that is set; 0 without one."""
    words = np.flatnonzero(mask)
    return int(words[-1]) * 64 + int(mask[words[-1]]).bit_length() if len(words) else 0
