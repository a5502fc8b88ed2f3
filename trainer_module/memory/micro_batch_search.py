"""Search the largest micro-batch size that fits: which sizes to measure, and when to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

# How much two measurements of the same step may differ on a CPU (malloc, threads), with a margin.
_NOISE_BYTES = 16 << 20
# A size is ruled out without a measurement if its predicted need exceeds the budget by more.
_DOUBT = 0.05


class MemoryNeed(NamedTuple):
    """Memory of a step.

    Attributes:
        bytes: Its peak, or the memory at which it was stopped.
        finished: Whether it ran to its end.
    """

    bytes: int
    finished: bool = True

    def fits(self, budget: int) -> bool:
        """Return whether the step finished within the budget."""
        return self.finished and self.bytes <= budget


class Choice(NamedTuple):
    """The largest size that fits.

    Attributes:
        rows: Micro-batch size.
        bytes: Its measured need.
        next_rows: The next larger size; None if there is none.
        next_bytes: Lower bound of that size's need: measured, or predicted by a line through
            measurements.
    """

    rows: int
    bytes: int
    next_rows: int | None
    next_bytes: int | None


class DoesNotFit(Exception):
    """Not even one row fits; `need` is the memory of one row."""

    def __init__(self, need: MemoryNeed) -> None:
        """Create the error with the need of one row."""
        super().__init__(need)
        self.need = need


def candidate_sizes(largest: int) -> list[int]:
    """Return the powers of two below `largest`, and `largest`."""
    return [1 << k for k in range(largest.bit_length()) if 1 << k < largest] + [largest]


def search(
    largest: int,
    budget: int,
    measure: Callable[[int], MemoryNeed],
    verify: Callable[[int], MemoryNeed],
) -> Choice:
    """Return the largest of `candidate_sizes(largest)` that fits, with few measurements.

    Memory is about a + b · rows. One row is measured first, for a, then a replica's whole part,
    which often fits. Otherwise a line through the measurements predicts the next size, until the
    next larger size is measured or predicted not to fit. If noise could hide the slope, the middle
    of the remaining sizes is next.

    Args:
        largest: Rows of a replica's part of the global batch.
        budget: Bytes.
        measure: Returns the need of a micro-batch size by a cheap measurement.
        verify: Returns the need by a full measurement; called for the size that is returned.

    Raises:
        DoesNotFit: One row needs more than the budget.
    """
    fitting: dict[int, int] = {}
    failing: dict[int, int] = {}
    verified: set[int] = set()

    def probe(size: int, ask: Callable[[int], MemoryNeed]) -> None:
        need = ask(size)
        fitting.pop(size, None)
        if need.fits(budget):
            fitting[size] = need.bytes
        elif size == 1:
            raise DoesNotFit(need)
        else:
            failing[size] = max(need.bytes, budget + 1)

    probe(1, measure)
    while True:
        best = max(fitting)
        between = [
            s for s in candidate_sizes(largest) if best < s < min(failing, default=largest + 1)
        ]
        slope = _slope(fitting, best)
        candidate = _candidate(between, budget, fitting, slope, any_failed=bool(failing))
        if candidate is not None:
            probe(candidate, measure)
        elif best not in verified:
            verified.add(best)
            probe(best, verify)
        else:
            break
    larger = [s for s in candidate_sizes(largest) if s > best]
    next_bytes = None
    if larger:
        next_bytes = failing.get(larger[0], 0)
        if slope is not None:
            next_bytes = max(next_bytes, int(fitting[best] + slope * (larger[0] - best)))
    return Choice(best, fitting[best], larger[0] if larger else None, next_bytes)


def _slope(fitting: dict[int, int], best: int) -> float | None:
    """Return the least bytes per row between the largest size that fits and another measurement.

    None if noise could hide it. The least, because no further measurement would correct the mistake
    of ruling out a size that fits.
    """
    slopes = [
        (fitting[best] - need) / (best - size)
        for size, need in fitting.items()
        if fitting[best] - need >= _NOISE_BYTES
    ]
    return min(slopes, default=None)


def _candidate(
    between: list[int],
    budget: int,
    fitting: dict[int, int],
    slope: float | None,
    *,
    any_failed: bool,
) -> int | None:
    """Return the size to measure next, or None if the largest size that fits is known."""
    if not between:
        return None
    if slope is None:
        return between[len(between) // 2] if any_failed else between[-1]
    best = max(fitting)
    allowed = budget + max(_DOUBT * budget, _NOISE_BYTES)
    fit = [s for s in between if fitting[best] + slope * (s - best) <= allowed]
    return max(fit) if fit else None
