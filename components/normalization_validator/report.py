"""report.json: what NormalizationValidator measured and what it concluded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from components.normalization_validator.limits import SECTION, NormalizationLimits

REPORT_JSON = "report.json"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Histogram(_Frozen):
    """Counts over bins of equal width, a power of two.

    Bin i covers [ (first_bin + i) 2^exponent , (first_bin + i + 1) 2^exponent ). The exponent is
    the least at which 256 bins hold the whole range, or -4 where that is finer and [-8, 8) holds
    99 % of the values; `below` and `above` then count the others.
    """

    exponent: int
    first_bin: int
    observed: tuple[int, ...]
    imputed: tuple[int, ...]
    below: int = 0
    above: int = 0

    @property
    def width(self) -> float:
        """Of a bin."""
        return 2.0**self.exponent

    @property
    def low(self) -> float:
        """Lower edge of the first bin."""
        return self.first_bin * self.width


class ColumnStatistics(_Frozen):
    """One column of one split.

    values: finite and non-finite ones. absent: rows without a value (sparse features only).
    count, mean and std (population, ddof 0) are over the finite values that were not imputed: what
    Transform's analyzers saw. min and max are over every finite value: what the model sees. None
    stands for a statistic of no values. validation_rule, bounds, is_aspect: what Transform says may
    be expected of the column.
    """

    name: str
    kind: str | None
    feature: str
    position: int
    vocabulary_size: int | None
    split: str
    values: int
    absent: int
    non_finite: int
    imputed: int
    count: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    constant: bool
    histogram: Histogram | None
    validation_rule: str | None = None
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None
    is_aspect: bool = False

    @property
    def is_id(self) -> bool:
        """Whether the values are ids in [0, vocabulary_size), to which no scale applies."""
        return self.vocabulary_size is not None

    @property
    def non_finite_share(self) -> float:
        """Of the values: NaN or infinite."""
        return self.non_finite / self.values if self.values else 0.0

    @property
    def imputed_share(self) -> float:
        """Of the values: imputed."""
        return self.imputed / self.values if self.values else 0.0


class SplitStatistics(_Frozen):
    """Every column of one split."""

    split: str
    rows: int
    columns: tuple[ColumnStatistics, ...]


class RawColumn(_Frozen):
    """The distribution of a raw column in one split, as StatisticsGen found it.

    Numbers have `bars` over intervals of equal width from low to high; texts have one bar for each
    of their most frequent values, `labels`. values: rows with a value; missing: rows without.
    """

    name: str
    split: str
    values: int
    missing: int
    bars: tuple[float, ...]
    labels: tuple[str, ...] | None = None
    low: float | None = None
    high: float | None = None


class Violation(_Frozen):
    """One violated limit; `message` says all of it in one sentence. value None: infinite."""

    column: str
    kind: str | None
    split: str
    statistic: str
    value: float | None
    limit: str
    message: str

    @classmethod
    def of(
        cls, column: ColumnStatistics, statistic: str, value: float, field: str, what: str
    ) -> Violation:
        """Create the violation of a field of the limits, whose message ends in `what`."""
        kind = f" ({column.kind})" if column.kind else ""
        return cls(
            column=column.name,
            kind=column.kind,
            split=column.split,
            statistic=statistic,
            value=value if math.isfinite(value) else None,
            limit=f"{SECTION}.{field}",
            message=f"column {column.name!r}{kind}, split {column.split}: {what}",
        )


class Report(_Frozen):
    """The content of report.json.

    sources: transformed column -> the raw or derived column that it comes from. raw: what is known
    of those, split by split; empty without StatisticsGen's output.
    """

    format: Literal["tfx-largebatch/normalization_report"] = "tfx-largebatch/normalization_report"
    version: Literal[1] = 1
    blessed: bool
    limits: NormalizationLimits
    splits: tuple[SplitStatistics, ...]
    violations: tuple[Violation, ...]
    sources: dict[str, str] = {}
    raw: tuple[RawColumn, ...] = ()

    def to_json(self) -> str:
        """Return the text of report.json."""
        return json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"

    def split(self, name: str) -> SplitStatistics:
        """Return the statistics of one split.

        Raises:
            KeyError: there is no such split.
        """
        for split in self.splits:
            if split.split == name:
                return split
        raise KeyError(name)


def summary(violations: Sequence[Violation]) -> str:
    """Return one line per violation, behind a line that counts them."""
    limits = "1 limit is" if len(violations) == 1 else f"{len(violations)} limits are"
    return "\n".join([f"{limits} violated:", *(f"  - {v.message}" for v in violations)])
