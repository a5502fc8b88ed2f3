"""Converts texts to the numbers that a model takes, and finds texts that are not numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.csv_formats import has_format, plain_numbers
from components.arrow_example_gen.csv_types import CsvTypes, are_numbers
from components.arrow_example_gen.number_format import NumberFormat
from components.arrow_example_gen.whole_numbers import beyond_int64


@dataclass(frozen=True)
class NumberTexts:
    """How texts write numbers.

    Attributes:
        decimal: mark before decimals.
        formats: column -> how it writes numbers for people; includes its decimal mark.
    """

    decimal: str = "."
    formats: Mapping[str, NumberFormat] = field(default_factory=dict)

    def numbers(self, name: str, cells: pa.Array, kind: Kind) -> tuple[pa.Array, list[int]]:
        """Return a column as numbers, null where a text is none, and the rows of such texts."""
        cells = pc.ascii_trim_whitespace(cells)
        if name not in self.formats:
            return _numbers_of(cells, kind, self.decimal)
        form = self.formats[name]
        written = pc.fill_null(has_format(cells, form), True)
        wrong = pc.invert(written)
        kept = pc.replace_with_mask(cells, wrong, pa.scalar(None, pa.string()))
        found, faulty = _numbers_of(plain_numbers(kept, form), kind, ".")
        return found, sorted({*faulty, *_places(wrong)})


def _numbers_of(cells: pa.Array, kind: Kind, decimal: str) -> tuple[pa.Array, list[int]]:
    if kind == "int":
        # 1,000 is not 1 where the mark is a point.
        whole = pc.match_substring_regex(cells, rf"^[+-]?[0-9]+([{decimal}]0*)?$")
        digits = pc.replace_substring_regex(cells, rf"[{decimal}]0*$", "")
        fits = pc.and_not(pc.fill_null(whole, True), beyond_int64(digits))
    else:
        fits = pc.fill_null(are_numbers(cells, decimal), True)
    kept = pc.replace_with_mask(cells, pc.invert(fits), pa.scalar(None, pa.string()))
    return CsvTypes({"": kind}, decimal).converted("", kept), _places(pc.invert(fits))


def _places(mask: pa.Array) -> list[int]:
    return mask.to_numpy(zero_copy_only=False).nonzero()[0].tolist()
