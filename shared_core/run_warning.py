"""A warning about data or a model, as a record: the terminal, files and pages show the same."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

_STEPS = 64  # a column with fewer steps of float32 between its ends gets a warning
LABEL_STEPS = 10_000  # the same of a label: its metrics are often far smaller than its range
_WHOLE = 1.0  # a constant column gets one where float32 holds whole numbers alone


class RunWarning(BaseModel):
    """Something that may be wrong although nothing failed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str = Field(description="What may be wrong, a sentence without its point.")
    fix: str = Field(default="", description="What to do, a sentence without its point.")
    column: str | None = Field(default=None, description="The column that it is about.")
    number: float | None = Field(
        default=None, allow_inf_nan=False, description="The number that it is about."
    )
    source: str = Field(default="init", description="The node or command that found it.")

    def __str__(self) -> str:
        """Return it in one or two sentences."""
        return f"{self.what}. {self.fix}." if self.fix else f"{self.what}."


def count_warnings(count: int) -> str:
    """Return `1 warning` or `2 warnings`."""
    return f"{count} warning{'' if count == 1 else 's'}"


def coarse_float32(
    name: str,
    low: float,
    high: float,
    *,
    steps: int = _STEPS,
    if_constant: str = "",
    keeper: str = "tf.Example",
    fix: str = "Write it as an int, in a smaller unit if it has decimals (int64 is exact; "
    "features.derive can then take an offset off and divide), or subtract an offset in the data",
) -> list[RunWarning]:
    """Return a warning if float32 has fewer than `steps` numbers from `low` to `high`, else none.

    `keeper` holds the column as float32. `if_constant` is what becomes of a column with one value.
    """
    import numpy as np

    step = float(np.spacing(np.float32(max(abs(low), abs(high)))))
    constant = low == high and step >= _WHOLE and keeper == "tf.Example"
    if not constant and not 0 < high - low < steps * step:
        return []
    holds = f"one value ({low:g}){if_constant}" if constant else f"{low:.9g} to {high:.9g}"
    return [
        RunWarning(
            what=f"column {name!r} holds {holds}. {keeper} keeps float32, which is {step:g} "
            "coarse there: what varies by less is lost",
            fix=fix,
            column=name,
            number=step,
            source="Transform",
        )
    ]
