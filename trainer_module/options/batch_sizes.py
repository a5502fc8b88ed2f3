"""The number of rows of a global batch: one size, or a schedule of sizes by optimizer step."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import BeforeValidator


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """The rows of the global batch of each optimizer step.

    A pass over the data ends with the remaining rows, as with a single size. So the sizes of a pass
    follow from its rows and from the step with which it begins.

    Attributes:
        steps: Steps from which a size holds, from 0, ascending.
        rows: The size from each of them.
    """

    steps: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(cls, sizes: int | Mapping[int, int]) -> BatchSizes:
        """Return the schedule of one size, or of `{step: size}` with a size for step 0."""
        ordered = sorted(sizes.items()) if isinstance(sizes, Mapping) else [(0, sizes)]
        return cls(*zip(*ordered, strict=True))

    @property
    def is_single(self) -> bool:
        """Whether there is only one size."""
        return len(self.rows) == 1

    @property
    def smallest(self) -> int:
        """The smallest size."""
        return min(self.rows)

    @property
    def largest(self) -> int:
        """The largest size."""
        return max(self.rows)

    def at(self, step: int) -> int:
        """Return the size at a step."""
        return self.rows[bisect.bisect_right(self.steps, step) - 1]

    def next_change(self, step: int) -> int | None:
        """Return the next step with another entry; None after the last one."""
        place = bisect.bisect_right(self.steps, step)
        return self.steps[place] if place < len(self.steps) else None

    def of_pass(self, rows: int, first_step: int) -> list[tuple[int, int]]:
        """Return (size, number of batches) in order, of a pass over the data."""
        found, step = list[tuple[int, int]](), first_step
        while rows > 0:
            size, change = self.at(step), self.next_change(step)
            count = -(-rows // size)
            if change is not None:
                count = min(count, change - step)
            found.append((size, count))
            rows, step = rows - count * size, step + count
        return found

    def steps_of_passes(self, rows: int, first_step: int, passes: int) -> int:
        """Return the number of batches of several passes."""
        step = first_step
        for done in range(passes):
            if self.next_change(step) is None:
                return step - first_step + (passes - done) * -(-rows // self.rows[-1])
            step += sum(count for _, count in self.of_pass(rows, step))
        return step - first_step

    def __str__(self) -> str:
        first, *others = (f"{rows:,}" for rows in self.rows)
        changes = (f"{r} from step {s:,}" for s, r in zip(self.steps[1:], others, strict=True))
        return ", ".join([f"{first} rows", *changes])


def check_batch_sizes(value: Any) -> int | dict[int, int]:
    """Return a size as an int, and a schedule as a dict in the order of steps.

    Keys may be text, as in JSON, and in any order, because TFX sorts the keys of JSON as text.

    Raises:
        ValueError: A step or a size is not a whole number, a size is below 1, a step appears twice,
            or step 0 is missing.
    """
    if not isinstance(value, Mapping):
        size = _as_int(value)
        if size is None or size < 1:
            raise ValueError(
                "use a whole number of at least 1, or sizes by step such as {0: 256, 1000: 1024}"
            )
        return size
    sizes: dict[int, int] = {}
    for key, given in value.items():
        step, size = _as_int(key), _as_int(given)
        if step is None or step < 0:
            raise ValueError(f"{key!r} is not a step; use whole numbers from 0, the first step")
        if size is None or size < 1:
            raise ValueError(f"{given!r} at step {step} is not a size; use at least 1 row")
        if step in sizes:
            raise ValueError(f"step {step} appears twice; give one size for it")
        sizes[step] = size
    if 0 not in sizes:
        given = ", ".join(map(str, sorted(sizes))) or "no step"
        raise ValueError(f"sizes from {given}, and none from step 0; add it, such as 0: 256")
    return sizes[0] if len(sizes) == 1 else dict(sorted(sizes.items()))


def _as_int(value: Any) -> int | None:
    """Return a whole number of any type, also as text, as an int; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isinstance(value, str) or number == value else None


# The mark of a field that is a size or a schedule of sizes.
BATCH_SIZES = BeforeValidator(check_batch_sizes)
