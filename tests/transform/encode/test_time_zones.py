"""A place's clock, against zoneinfo; to the second."""

from __future__ import annotations

import datetime
import zoneinfo

import numpy as np
import pytest

from transform.encode.time_zones import clock, local_seconds

UTC = datetime.timezone.utc


def test_changes_of_the_clock_are_where_zoneinfo_has_them() -> None:
    changes, offsets = clock("Europe/Oslo")
    zone = zoneinfo.ZoneInfo("Europe/Oslo")
    assert len(offsets) == len(changes) + 1
    for change, before, after in zip(changes, offsets, offsets[1:], strict=False):
        for second, offset in ((int(change) - 1, before), (int(change), after)):
            there = datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(0, second)
            shift = there.astimezone(zone).utcoffset()
            assert shift is not None
            assert shift.total_seconds() == offset


def test_a_place_without_changes_is_shifted_always() -> None:
    tf = pytest.importorskip("tensorflow")
    seconds = np.asarray([[0.0, -1e10], [1e10, np.nan]])
    found = local_seconds(tf.constant(seconds), "Etc/GMT-5").numpy()
    np.testing.assert_array_equal(found, seconds + 5 * 3600)
