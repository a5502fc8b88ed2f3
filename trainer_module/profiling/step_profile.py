"""The result of `profile_step`, and its table."""

from __future__ import annotations

import dataclasses
import textwrap

from trainer_module.devices.memory_budget import format_bytes
from trainer_module.profiling.timeline import XLA_PART, OperationTime

_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class StepProfile:
    """Where the time of optimizer steps went. `print(profile)` shows it as a table.

    Attributes:
        parts: Seconds per step of each part: reading, forward, backward, forward and backward
            (XLA), reduction over replicas, update, host overhead, idle. They add up to
            `recorded_seconds`.
        recorded_seconds: Wall time of a step while TensorFlow's profiler records, which makes steps
            slower.
        seconds: Wall time of a step without the profiler, in a run directly before.
        rows_per_second: Rows per second of that run.
        steps: Number of steps in each of the two runs.
        global_batch_rows: Mean number of rows of a step.
        micro_batch_size: Rows of a micro-batch on one replica.
        replicas: Number of replicas.
        peak_memory_bytes: Peak of the resident memory of this process in the run without the
            profiler, with TensorFlow itself, the model and the data.
        operations: The most expensive operations, the longest first.
        hints: One sentence per bottleneck.
    """

    parts: dict[str, float]
    recorded_seconds: float
    seconds: float
    rows_per_second: float
    steps: int
    global_batch_rows: float
    micro_batch_size: int
    replicas: int
    peak_memory_bytes: int
    operations: tuple[OperationTime, ...]
    hints: tuple[str, ...]

    def __str__(self) -> str:
        """Return the tables and the hints as text of at most 100 columns."""
        total = sum(self.parts.values())
        slower = self.recorded_seconds / self.seconds - 1 if self.seconds > 0 else 0.0
        lines = [
            f"{self.steps} steps of {self.global_batch_rows:,.0f} rows on {self.replicas} "
            f"replica{'s' * (self.replicas > 1)}, micro-batches of {self.micro_batch_size:,} rows",
            "",
            f"{'part':<28} {'ms per step':>11} {'share':>6}",
        ]
        for name, seconds in self.parts.items():
            if name != XLA_PART or seconds > 0:
                lines.append(_line(f"{name:<28}", seconds, total))
        lines += [
            _line(f"{'wall time':<28}", total, total),
            "",
            f"rows/s        {self.rows_per_second:,.0f} ({self.seconds * 1e3:,.2f} ms per step; "
            f"the profiler adds {max(slower, 0.0):.0%})",
            f"peak memory   {format_bytes(self.peak_memory_bytes)} of this process",
            "",
            f"{'operation':<28} {'layer':<24} {'part':<26} {'ms':>8} {'share':>6}",
        ]
        for each in self.operations:
            text = f"{each.type[:28]:<28} {each.layer[:24]:<24} {each.phase:<26}"
            lines.append(_line(text, each.seconds, total, width=8))
        if self.hints:
            lines.append("")
        for hint in self.hints:
            lines += textwrap.wrap(f"hint: {hint}", _WIDTH, subsequent_indent="      ")
        return "\n".join(lines)


def _line(text: str, seconds: float, total: float, *, width: int = 11) -> str:
    share = seconds / total if total > 0 else 0.0
    return f"{text} {seconds * 1e3:>{width},.2f} {share:>6.1%}"
