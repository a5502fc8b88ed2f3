"""The clock of a place: what is added to UTC, by the IANA time zone database.

The changes of 1900 to 2100 are written into the graph, as they are known when Transform runs:
serving needs no database, and gives what training gave. Before and after, the first and the last
known offset count.
"""

from __future__ import annotations

import datetime
import functools
import zoneinfo
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_FIRST, _LAST = (
    int((datetime.datetime(year, 1, 1, tzinfo=datetime.timezone.utc) - _EPOCH).total_seconds())
    for year in (1900, 2101)
)
_DAY = 86_400


class Clock(NamedTuple):
    """A zone's offsets, in seconds.

    Attributes:
        changes: int64 `[m]`, seconds since 1970 UTC from which a new offset counts, ascending.
        offsets: int64 `[m + 1]`, local time minus UTC before, between and after them.
    """

    changes: np.ndarray
    offsets: np.ndarray


@functools.lru_cache
def clock(name: str) -> Clock:
    """Return the offsets of a zone from 1900 to 2100, two changes within a day taken for one."""
    zone = zoneinfo.ZoneInfo(name)

    def offset(second: int) -> int:
        local = (_EPOCH + datetime.timedelta(seconds=second)).astimezone(zone)
        shift = local.utcoffset()
        assert shift is not None
        return round(shift.total_seconds())

    changes: list[int] = []
    offsets = [offset(_FIRST)]
    for day in range(_FIRST + _DAY, _LAST, _DAY):
        after = offset(day)
        if after == offsets[-1]:
            continue
        low, high = day - _DAY, day  # the change is in (low, high]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if offset(middle) == after else (middle, high)
        changes.append(high)
        offsets.append(after)
    return Clock(np.asarray(changes, np.int64), np.asarray(offsets, np.int64))


def local_seconds(seconds: tf.Tensor, name: str) -> tf.Tensor:
    """Convert UTC to the zone's clock; float64 `[...]` seconds since 1970, NaN stays NaN."""
    import tensorflow as tf

    changes, offsets = clock(name)
    known = tf.where(tf.math.is_nan(seconds), tf.zeros_like(seconds), seconds)
    place = tf.searchsorted(tf.constant(changes, tf.float64), tf.reshape(known, [-1]), side="right")
    shift = tf.reshape(tf.gather(tf.constant(offsets, tf.float64), place), tf.shape(seconds))
    return seconds + shift
