"""What a section is made from, `PageRun`, and what it is made of: texts, tiles, tables, charts.

The elements hold the values of the page, so that a test or a program can read them without a
browser. `templates/elements.html.jinja` has the markup of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.report.result import RunResult
from pipeline.report.run_record import RunRecord
from pipeline.report.tables import State, Table

_ZERO = 1e-7  # what is nearer to 0 is shown as 0: float32 has no more digits beside 1
_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class PageRun:
    """A run, and those that it is compared with.

    Attributes:
        record: Its record: its folder, its summary.
        result: What it found.
        previous: The run before; None if this one is the first.
        blessed: The latest run before whose model was blessed; None if there is none.
    """

    record: RunRecord
    result: RunResult
    previous: RunRecord | None = None
    blessed: RunRecord | None = None

    @property
    def summary(self) -> JsonObject:
        """The content of the run's summary.json."""
        return self.record.summary


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    state: State = ""


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    texts: Sequence[str]
    state: State = ""


@dataclass(frozen=True)
class Code:
    """A text in a fixed-width font."""

    title: str
    text: str


@dataclass(frozen=True)
class Tile:
    """A number in large print, with its name above and a note below."""

    name: str
    value: str
    note: str = ""
    state: State = ""


@dataclass(frozen=True)
class Tiles:
    """Tiles side by side."""

    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart.

    Attributes:
        title: What it shows; also its caption.
        spec: Vega-Lite specification without `data`. Charts with equal specifications share one
            copy in the page.
        data: Column -> values, all of the same length.
        description: One sentence for those who cannot see the chart.
    """

    title: str
    spec: JsonObject
    data: Mapping[str, Sequence[JsonValue]]
    description: str = ""


@dataclass(frozen=True)
class Group:
    """Blocks that open and close together."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Beside:
    """Blocks side by side where the window is wide enough."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Thresholds:
    """What a binary classifier finds at each threshold, with a slider.

    Attributes:
        title: What it shows; also its caption.
        counted: Unit of the counts: rows or weights.
        thresholds: Increasing; a row is predicted positive if its probability is above it.
        true_positives: The positive rows above each threshold.
        false_positives: The negative rows above each threshold.
        positives: All positive rows.
        negatives: All negative rows.
        blocks: Charts whose specification has a parameter `threshold`, which follows the slider.
    """

    title: str
    counted: str
    thresholds: Sequence[float]
    true_positives: Sequence[float]
    false_positives: Sequence[float]
    positives: float
    negatives: float
    blocks: Sequence[Chart] = ()

    @property
    def start(self) -> int:
        """The place of the threshold that is nearest to 0.5, where the slider stands at first."""
        return min(range(len(self.thresholds)), key=lambda i: abs(self.thresholds[i] - 0.5))

    def rates_at(self, place: int) -> dict[str, float | None]:
        """Return the rates at a threshold by name; None where the denominator is 0.

        `page.js` has the same formulas.
        """
        tp, fn, fp, tn = self.counts_at(place)
        ratios = {
            "precision": (tp, tp + fp),
            "recall": (tp, tp + fn),
            "accuracy": (tp + tn, tp + fp + fn + tn),
            "false positive rate": (fp, fp + tn),
            "F1": (2 * tp, 2 * tp + fp + fn),
        }
        return {name: part / whole if whole else None for name, (part, whole) in ratios.items()}

    def counts_at(self, place: int) -> tuple[float, float, float, float]:
        """Return true positives, false negatives, false positives, true negatives."""
        tp, fp = self.true_positives[place], self.false_positives[place]
        return tp, self.positives - tp, fp, self.negatives - fp


Block: TypeAlias = Text | Items | Code | Tiles | Chart | Table | Group | Beside | Thresholds


@dataclass(frozen=True)
class Section:
    """A section of the page: its anchor, heading and content."""

    id: str
    title: str
    blocks: Sequence[Block]


def short(value: float | None, digits: int = 4) -> str:
    """Return a number in some significant digits, or with an exponent."""
    if value is None:
        return "\N{EN DASH}"
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


def rounded(values: Any, digits: int = 6) -> list[float | None]:
    """Return floats with some significant digits, as short as JSON writes them."""
    numbers = [float(f"{float(each):.{digits}g}") for each in values]
    return [int(n) if n.is_integer() and abs(n) < 2**53 else n for n in numbers]
