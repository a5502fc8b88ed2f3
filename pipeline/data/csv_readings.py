"""Ways to read a CSV column, counted over all its cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.data.csv_files import csv_blocks
from pipeline.data.csv_words import FEW_WORDS

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.csv_options import NumberFormat
    from components.arrow_example_gen.csv_table import CsvTable
    from components.arrow_example_gen.csv_types import CellCounts

SAMPLED = 1_000  # distinct texts of a column
_FEWEST_SHORT, _SHORT = 3, 0.01  # numbers below 1,000, and their share: fewer may be slips
_DATE = (
    r"^\s*(\d{1,4}[-./ ]\s?\w{1,9}[-./ ,]\s?\d{1,4}([T ,].*)?|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}.*"
    r"|\d{4}-\d{2}-\d{2}.*)\s*$"
)
_ZERO_DATE = r"^\s*0+[-./]0+[-./]0+([ T:.]|0)*$"


@dataclass
class Reading:
    """A column that is read in one way.

    Attributes:
        form: Format of its numbers, or only their decimal mark; None: read as dates.
        values: Number of cells that can be read this way.
        words: The other cells, with counts; incomplete if there are many.
        seen: Number of cells that were read.
        counts: Counts of the numbers.
        lengths: Shortest and longest number with thousands separators, in characters.
        zero_ended: Number of such numbers that end with 0.
        short: Number of others of one to three digits, except 0.
        long: Number of others of four digits or more.
    """

    form: NumberFormat | str | None
    values: int = 0
    words: Counter[str] = field(default_factory=Counter)
    seen: int = 0
    counts: CellCounts | None = None
    lengths: tuple[int, int] | None = None
    zero_ended: int = 0
    short: int = 0
    long: int = 0

    @property
    def has_many_words(self) -> bool:
        """Whether there are more distinct words than may represent missing values."""
        return len(self.words) > FEW_WORDS

    @property
    def shows_thousands(self) -> bool:
        """Whether numbers below 1,000, and those alone, have no separator, and decimals no end."""
        enough = self.short >= max(_FEWEST_SHORT, _SHORT * self.values)
        return enough and self.zero_ended > 0 and not self.long

    @property
    def is_ruled_out(self) -> bool:
        """Whether most cells cannot be read this way, so that the rest need not be tried."""
        return self.has_many_words and 2 * self.values < self.seen

    def add(self, cells: pa.Array) -> None:
        """Count more cells, none of them missing."""
        import pyarrow.compute as pc

        from components.arrow_example_gen.csv_numbers import are_numbers, has_format
        from components.arrow_example_gen.csv_types import count_formatted

        trimmed = pc.ascii_trim_whitespace(cells)
        if self.form is None:
            zero = pc.match_substring_regex(trimmed, _ZERO_DATE)
            fits = pc.and_not(pc.match_substring_regex(trimmed, _DATE), zero)
        elif isinstance(self.form, str):
            fits = are_numbers(trimmed, self.form)
        else:
            fits = has_format(trimmed, self.form)
            found = count_formatted(trimmed.filter(fits), self.form)
            self.counts = found if self.counts is None else self.counts + found
            self._measure(trimmed.filter(fits), self.form)
        others = trimmed.filter(pc.invert(fits))
        self.values += len(cells) - len(others)
        self.seen += len(cells)
        if self.has_many_words:
            return
        words = pc.value_counts(others)
        for pair in words.slice(0, FEW_WORDS + 1).to_pylist():
            self.words[pair["values"]] += pair["counts"]

    def _measure(self, numbers: pa.Array, form: NumberFormat) -> None:
        import pyarrow.compute as pc

        if not form.thousands:
            return
        is_grouped = pc.match_substring_regex(numbers, r"[0-9][^0-9][0-9]{3}")
        grouped, others = numbers.filter(is_grouped), numbers.filter(pc.invert(is_grouped))
        self.zero_ended += _matches(grouped, r"[0-9]0[^0-9]*$")
        self.short += _matches(others, r"^[^0-9]*[1-9][0-9]{0,2}[^0-9]*$")
        self.long += _matches(others, r"[0-9]{4}")
        if not len(grouped):
            return
        found = pc.min_max(pc.utf8_length(grouped)).as_py()
        low, high = self.lengths or (found["min"], found["max"])
        self.lengths = min(low, found["min"]), max(high, found["max"])


def _matches(cells: pa.Array, pattern: str) -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.match_substring_regex(cells, pattern)).as_py() or 0


def sample_texts(table: CsvTable, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the first `SAMPLED` distinct texts of each column, without surrounding spaces."""
    import pyarrow.compute as pc

    found: dict[str, dict[str, None]] = {name: {} for name in names}
    for _, block in csv_blocks(table):
        short = [name for name in names if len(found[name]) < SAMPLED]
        if not short:
            break
        for name in short:
            cells = pc.unique(pc.ascii_trim_whitespace(block[name].drop_null()))
            found[name].update(dict.fromkeys(cells.slice(0, SAMPLED).to_pylist()))
    return {name: list(texts)[:SAMPLED] for name, texts in found.items()}


def try_readings(table: CsvTable, ways: Mapping[str, Sequence[Reading]]) -> None:
    """Count all cells of columns in each of their readings."""
    for _, block in csv_blocks(table):
        for name, readings in ways.items():
            cells = block[name].drop_null()
            for reading in readings:
                if not reading.is_ruled_out:
                    reading.add(cells)
