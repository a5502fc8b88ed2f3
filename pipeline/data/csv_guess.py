"""Detect the dialect of CSV files from all of their cells, for `data.csv` in the YAML of `init`.

`run` does not guess options whose errors would be silent: an encoding, or that a column of numbers
contains codes. `init` writes its guess to the YAML, where the user can see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.data.csv_columns import examine_columns
from pipeline.data.csv_files import csv_blocks, open_csv
from shared_core.run_warning import RunWarning

if TYPE_CHECKING:
    from components import CsvOptions
    from components.arrow_example_gen.csv_table import CsvTable
    from components.arrow_example_gen.csv_types import CellCounts, Counts


@dataclass(frozen=True)
class CsvGuess:
    """Options and their reasons.

    Attributes:
        options: Options to read the file with.
        reasons: A sentence for each option that is not the default.
        doubts: A warning for each column whose numbers may have another meaning, or stay text.
    """

    options: CsvOptions
    reasons: tuple[str, ...] = ()
    doubts: tuple[RunWarning, ...] = ()

    def section(self) -> JsonObject:
        """Return the content of `data.csv`: the options that are not the default."""
        return self.options.model_dump(mode="json", exclude_defaults=True)


def guess_csv(found: Sequence[Path], header: bool | None = None) -> CsvGuess:
    """Detect the options of complete files.

    Args:
        found: The files.
        header: Whether the first lines name the columns; None: they do, and a first line that looks
            like data is an error.

    Raises:
        ConfigError: A file is not CSV in any encoding that is tried, or its first line looks like
            data.
    """
    from components import CsvOptions
    from components.arrow_example_gen import csv_types
    from components.arrow_example_gen.csv_header import InvalidEncoding

    options = CsvOptions(header=header)
    reasons: list[str] = []
    for encoding in (None, "cp1252", "latin-1"):
        options = options.model_copy(update={"encoding": encoding})
        try:
            table = open_csv(found, options)
            counts = _counted(table)
            break
        except ConfigError as error:
            if not isinstance(error.__cause__, InvalidEncoding) or encoding == "latin-1":
                raise
    if options.encoding is not None:
        reasons.append(f"encoding: some bytes are not UTF-8; {options.encoding} can read all.")
    if header is False:
        reasons.append(
            f"header: the first line is a row; columns are column_1 to column_{len(table.columns)}."
        )
    if table.dropped:
        reasons.append(f"{table.dropped.removeprefix(f'{found[0]}: ')}.")
    codes = [name for name, cells in counts.items() if _are_codes(cells)]
    if codes:
        options = options.model_copy(update={"text": tuple(codes)})
        reasons.append(f"text: numbers that begin with 0 are codes: {', '.join(codes)}.")
    findings = examine_columns(table, counts, skip=codes)
    if findings.missing_in or findings.formatted or findings.text:
        updates = {
            "missing_in": findings.missing_in,
            "formatted": findings.formatted,
            "text": (*options.text, *findings.text),
        }
        options = options.model_copy(update=updates)
        counts = _counted(open_csv(found, options))
    reasons += findings.reasons
    delimiter = table.headers[table.files[0]].delimiter
    while True:
        try:
            csv_types.decide(counts, options, delimiter)
            return CsvGuess(options, tuple(reasons), tuple(findings.doubts))
        except csv_types.MixedColumn as mixed:
            options = options.model_copy(update={"text": (*options.text, mixed.column)})
            if mixed.column not in [each.column for each in findings.doubts]:
                what = f"has texts among its numbers, {mixed.value!r} for one: it stays text"
                findings.doubt(mixed.column, what)


def _counted(table: CsvTable) -> Counts:
    from components.arrow_example_gen import csv_types

    none = dict.fromkeys(table.columns, csv_types.CellCounts())
    return csv_types.together([none, *(table.count(block.cells) for block in csv_blocks(table))])


def _are_codes(cells: CellCounts) -> bool:
    """Return whether cells are codes: integers, some with a leading 0 (zip codes), and words."""
    return cells.zero_led > 0 and cells.whole + cells.texts == cells.present < 2 * cells.whole
