"""Memory of the quantile sketch: robust and gaussian columns, learned bounds, against tfx_bsl's.

Both sketches have the same bound, 0.1 % of the rows for up to 2^32 of them, and get the same normal
values, 1,000 rows at a time, each in a separate process; tfx_bsl's is the one behind
`tft.quantiles`. What is counted is resident memory above that before the first row (`VmHWM`), the
seconds that adding the rows and asking for 1,001 quantiles take, and the bytes that go to another
worker, before compression. The ranks of the first column's quantiles have to be within the bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._result import Limit, Row, Unit
from benchmarks._transform import peak_memory

GRID = 1_000
TABLES = ((300, 100_000), (20, 1_000_000))
BLOCK = 1_000


class Held(NamedTuple):
    """What a sketch took: bytes above what was there, seconds, bytes to send."""

    above: int
    seconds: float
    sent: int


def main() -> None:
    """Fills both sketches, alternating."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    tables = ((3, 20_000),) if arguments.quick else TABLES
    rows = []
    for columns, count in tables:
        found: dict[str, list[Held]] = {"ours": [], "tfx_bsl": []}
        for index in range(1 if arguments.quick else arguments.runs):
            for whose in list(found)[:: 1 if index % 2 == 0 else -1]:
                held = in_own_process(measure, whose, columns, count)
                found[whose].append(held)
                print(f"{columns} x {count:,}, {whose}: {held.above / 1e6:,.0f} MB")
        what = f"{columns} columns x {count:,} rows"
        measured: tuple[tuple[str, str, Unit, Limit | None], ...] = (
            ("memory", "above", "B", Limit(0.5)),
            ("sent", "sent", "B", None),
            ("time", "seconds", "s", None),
        )
        for title, field, unit, limit in measured:
            rows.append(
                Row(
                    what=f"{title}, {what}",
                    baseline_name="tfx_bsl's sketch",
                    ours=[getattr(held, field) for held in found["ours"]],
                    baseline=[getattr(held, field) for held in found["tfx_bsl"]],
                    unit=unit,
                    limit=limit,
                )
            )
    _report.publish(__file__, rows, quick=arguments.quick)


def measure(whose: str, columns: int, rows: int) -> Held:
    """Fills a sketch and checks the quantiles of its first column."""
    sketch = _Ours(columns) if whose == "ours" else _Theirs(columns)
    first = np.concatenate([block[:, 0] for block in blocks(columns, rows)])
    first.sort()
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
    before, seconds = peak_memory(), 0.0
    for block in blocks(columns, rows):
        start = time.perf_counter()
        sketch.add(block)
        seconds += time.perf_counter() - start
    above = peak_memory() - before
    sent = sketch.sent()
    start = time.perf_counter()
    found = sketch.quantiles()
    seconds += time.perf_counter() - start
    ranks = np.searchsorted(first, found) / rows
    worst = float(np.abs(ranks - np.arange(GRID + 1) / GRID).max())
    if worst > 1 / GRID + 1 / rows:
        raise SystemExit(f"{whose}: a rank is off by {worst:.2%}")
    return Held(above, seconds, sent)


def blocks(columns: int, rows: int) -> Iterator[np.ndarray]:
    """The rows, the same each time."""
    random = np.random.default_rng(0)
    for _ in range(0, rows, BLOCK):
        yield random.normal(size=[BLOCK, columns])


class _Ours:
    def __init__(self, columns: int):
        from transform.analyzers.quantiles import QuantileSketch, capacity_for

        self._sketch = QuantileSketch(columns, capacity_for(1 / GRID))

    def add(self, block: np.ndarray) -> None:
        self._sketch.add(block)

    def sent(self) -> int:
        return sum(array.nbytes for array in self._sketch.state().values())

    def quantiles(self) -> np.ndarray:
        return self._sketch.quantiles(range(GRID + 1), grid=GRID)[0]


class _Theirs:
    def __init__(self, columns: int):
        from tfx_bsl import sketches

        self._sketch: Any = sketches.QuantilesSketch(1 / GRID, 2**32, columns)

    def add(self, block: np.ndarray) -> None:
        self._sketch.AddValues(pa.array(block.ravel()))

    def sent(self) -> int:
        self._sketch.Compact()
        return len(self._sketch.__getstate__())

    def quantiles(self) -> np.ndarray:
        return np.asarray(self._sketch.GetQuantiles(GRID).to_pylist()[0])


if __name__ == "__main__":
    main()
