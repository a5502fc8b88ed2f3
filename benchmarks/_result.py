"""What a benchmark found, on disk: benchmarks/results/MACHINE/NAME.json."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("tfx", "tensorflow", "keras", "tensorflow-transform", "apache-beam")

Unit = Literal["s", "B", "rows/s", "steps", "weights", "AUC", "accuracy", "MAE"]


@dataclasses.dataclass(frozen=True)
class Limit:
    """What a ratio has to be.

    Attributes:
        value: The largest or the smallest ratio that will do.
        least: Whether it is the smallest.
        whose: Our own target, or what others claim and we only look at.
    """

    value: float
    least: bool = False
    whose: Literal["target", "claim"] = "target"

    def is_met(self, ratio: float) -> bool:
        """Whether the ratio is within the limit."""
        return ratio >= self.value if self.least else ratio <= self.value


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison: measurements made in turns in one run.

    Attributes:
        what: What is compared, unique within its benchmark: "small MLP, K = 8".
        baseline_name: With what: "Keras fit".
        ours: One measurement per round.
        baseline: One per round; the ratio is that of measurements of the same round.
        unit: Of both.
        limit: None where the ratio is only reported.
        detail: Of the baseline in this measurement; another one is still the same comparison.
    """

    what: str
    baseline_name: str
    ours: Sequence[float]
    baseline: Sequence[float]
    unit: Unit = "s"
    limit: Limit | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        """Refuses what has no ratio."""
        if len(self.ours) != len(self.baseline) or not self.ours:
            raise ValueError(
                f"{self.what!r} has {len(self.ours)} measurements of ours and {len(self.baseline)} "
                "of the baseline: take both in each round."
            )

    @property
    def ratios(self) -> list[float]:
        """Ours / baseline, per round."""
        return [mine / theirs for mine, theirs in zip(self.ours, self.baseline, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(self.ratios)


def memory_growth(what: str, peaks: Mapping[int, Sequence[float]]) -> list[Row]:
    """Compares the peak memory of each number of rows with that of the first: at most 1.1.

    Args:
        what: What is compared, with `{rows}` for the number of rows.
        peaks: Number of rows -> bytes, one measurement per round.
    """
    first, *others = peaks
    return [
        Row(
            what.format(rows=f"{rows:,} rows"),
            f"{first:,} rows",
            peaks[rows],
            peaks[first],
            unit="B",
            limit=Limit(1.1),
        )
        for rows in others
    ]


@dataclasses.dataclass(frozen=True)
class Result:
    """A benchmark's rows and where they were measured.

    Attributes:
        name: Of the program, without `.py`.
        machine: See `machine`.
        rows: In the program's order.
        notes: Sentences about what was seen beside the ratios, by subject.
    """

    name: str
    machine: str
    rows: tuple[Row, ...]
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def hardware(self) -> str:
        """The machine without versions: `AMD EPYC, 2 cores`."""
        return self.machine.partition(";")[0]

    def save(self, folder: Path = RESULTS) -> Path:
        """Writes the result; rows that were not measured this time stay as they are.

        A note on a row that was measured again is dropped. Rows of other versions do
        not stay; those of another machine are another table.
        """
        rows = {(row.what, row.baseline_name): row for row in self.rows}
        notes = dict(self.notes)
        path = folder / _folder_name(self.hardware) / f"{self.name}.json"
        if path.exists():
            before = load(path)
            if before.machine == self.machine:
                kept = {(row.what, row.baseline_name): row for row in before.rows}
                replaced = {row.what for row in self.rows}
                notes = {k: v for k, v in before.notes.items() if k not in replaced} | notes
                rows = {**kept, **rows}
        whole = dataclasses.replace(self, rows=tuple(rows.values()), notes=notes)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_json(whole), indent=1) + "\n")
        return path


def load(path: Path) -> Result:
    """Reads one result."""
    values = json.loads(path.read_text())
    rows = tuple(
        Row(**{**row, "limit": row["limit"] and Limit(**row["limit"])}) for row in values["rows"]
    )
    return Result(values["name"], values["machine"], rows, values["notes"])


def load_all(folder: Path = RESULTS) -> list[Result]:
    """Reads every result, by benchmark and machine."""
    paths = sorted(folder.glob("*/*.json"), key=lambda path: (path.stem, path.parent.name))
    return [load(path) for path in paths]


def machine() -> str:
    """One line: GPUs, processor, cores, Python and the versions that matter."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            names = [line.partition(":")[2].strip() for line in stream if "model name" in line]
        model = names[0] if names else model
    except OSError:
        pass
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    hardware = ", ".join([*_gpus(), model])
    return f"{hardware}, {os.cpu_count()} cores; Python {platform.python_version()}, {versions}"


def _gpus() -> list[str]:
    """Returns the names of the machine's GPUs, as NVIDIA's driver says them."""
    if shutil.which("nvidia-smi") is None:
        return []
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(ask, capture_output=True, text=True).stdout.strip().splitlines()


def _folder_name(hardware: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", hardware.lower()).strip("-")


def _json(result: Result) -> dict[str, object]:
    values = dataclasses.asdict(result)
    for row in values["rows"]:
        for side in ("ours", "baseline"):
            # Six digits: more than any clock has, and files that can be read in review.
            row[side] = [float(f"{value:.6g}") for value in row[side]]
    return values
