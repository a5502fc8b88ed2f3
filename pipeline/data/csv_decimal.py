"""Detect an ambiguous decimal comma: `1,234` if nothing else has a comma."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.data.csv_readings import sample_texts

if TYPE_CHECKING:
    from components.arrow_example_gen.csv_table import CsvTable
    from components.arrow_example_gen.csv_types import Counts

_MAY_BE_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")


def describe_ambiguous_comma(table: CsvTable, counts: Counts) -> list[str]:
    """Return a sentence if every number with a comma may be 1.234 or 1234.

    The reader treats the comma as decimal, which is usual in files with `;` between cells.

    Args:
        table: The files.
        counts: Counts of all their cells.
    """
    from components.arrow_example_gen.csv_types import decimal_of

    options = table.options
    if options.decimal is not None:
        return []
    if decimal_of(counts, options, table.headers[table.files[0]].delimiter) != ",":
        return []
    other = {*options.text, *options.formatted}
    names = [
        name
        for name, cells in counts.items()
        if name not in other and not cells.texts and (cells.commas or cells.comma[0])
    ]
    with_comma = {
        name: [text for text in texts if "," in text]
        for name, texts in sample_texts(table, names).items()
    }
    found = [(name, text) for name, texts in with_comma.items() for text in texts]
    if not found or not all(_MAY_BE_THOUSANDS.fullmatch(text) for _, text in found):
        return []
    name, text = found[0]
    number = text.replace(",", ".")
    return [
        f"decimal: {text!r} of {name!r} is read as {number}. If its comma separates thousands, set "
        f'data.csv.formatted: {{{name}: {{thousands: ","}}}}.'
    ]
