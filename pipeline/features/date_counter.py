"""Count the days and times in a column of dates, over all rows and block by block."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.arrow_example_gen.columns import Kind
from pipeline.features.date_formats import LIKE_A_DATE

EPOCHS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}
FIRST, LAST = 631_152_000, 2_840_140_800  # 1990 and 2060, in seconds since 1970
EXAMPLES = 1_000
_DAY = 86_400
_MOST_DAYS = 100_000  # distinct days of a column: 270 years
_TIME = r"(?:[Tt ]|, )(?P<time>\d{1,2}:\d{2})(?::\d{2}(?:[.,]\d*)?)?(?P<half> ?[AaPp][Mm])?"
_ZONE = r"(?:[Zz]|[+-]\d{2}:?\d{2})?"
_TAIL = rf"{_TIME}{_ZONE}\s*$"


class DateCounter:
    """The days and times of texts, and of ints in each unit since 1970.

    Attributes:
        days: For texts: distinct parts before the time of day; None if a value is not a date.
        times: For texts: distinct times such as `17:30` or `5:30 PM`; empty if no value has one.
        without_time: For texts: whether a value has no time.
        examples: Up to 1,000 complete texts.
        epochs: For ints: unit -> days since 1970 and hours, for the units in which all values are
            times from 1990 to 2060.
    """

    def __init__(self, kind: Kind):
        """Create a counter without values."""
        self.days: set[str] | None = set() if kind == "string" else None
        self.times: set[str] = set()
        self.without_time = False
        self.examples: list[str] = []
        units = EPOCHS if kind == "int" else ()
        self.epochs: dict[str, tuple[set[int], set[int]]] = {unit: (set(), set()) for unit in units}

    def add(self, values: np.ndarray) -> None:
        """Add the distinct values of a block."""
        if self.days is not None:
            self._add_texts(values)
        for unit in list(self.epochs):
            self._add_numbers(values, unit)

    def _add_texts(self, values: np.ndarray) -> None:
        assert self.days is not None
        texts = pa.array(values, pa.string())
        # One value is enough to exclude most columns of texts.
        if not re.match(LIKE_A_DATE, values[0]) or not _all_match(texts):
            self.days, self.times = None, set()
            return
        room = EXAMPLES - len(self.examples)
        self.examples += values[:room].tolist()
        parts = pc.extract_regex(texts, rf"{_TAIL}")
        # A text without a time has no struct.
        has_time = parts.is_valid()
        self.without_time |= not pc.all(has_time).as_py()
        days = pc.unique(pc.replace_substring_regex(texts, _TAIL, ""))
        self.days.update(days.to_pylist())
        found = parts.filter(has_time)
        if len(found):
            halves = pc.utf8_upper(pc.struct_field(found, [1]))
            joined = pc.binary_join_element_wise(pc.struct_field(found, [0]), halves, "")
            self.times.update(pc.unique(joined).to_pylist())
        if len(self.days) > _MOST_DAYS or len(self.times) > 2 * _DAY:
            self.days, self.times = None, set()

    def _add_numbers(self, values: np.ndarray, unit: str) -> None:
        seconds = values // EPOCHS[unit]
        if seconds.min() < FIRST or seconds.max() > LAST:
            del self.epochs[unit]
            return
        days, hours = self.epochs[unit]
        days.update(np.unique(seconds // _DAY).tolist())
        hours.update(np.unique(seconds % _DAY // 3600).tolist())


def _all_match(texts: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, f"^{LIKE_A_DATE}")).as_py())
