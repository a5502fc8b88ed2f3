"""Members of an encoder over several groups, and what is said of an id."""

from __future__ import annotations

import pytest

from shared_core.feature_layout import Column
from transform.encode.encoder import Members, number_of_ids
from transform.spec.encoders import Hash
from transform.spec.group import Group, ResolvedGroup


def _group(buckets: int, *columns: str, impute: str | None = None) -> ResolvedGroup:
    encode = {"hash": {"buckets": buckets}}
    group = {"name": "g", "columns": columns, "encode": encode, "impute": impute}
    return ResolvedGroup(Group.model_validate(group), columns)


def test_each_column_has_its_groups_options() -> None:
    members = Members((_group(2, "a", "b"), _group(3, "c", impute="most_frequent")))
    assert members.names == ("a", "b", "c")
    assert members.options == (Hash(buckets=2), Hash(buckets=2), Hash(buckets=3))
    assert members.imputed == [False, False, True]


def test_ids_are_explained_by_their_number() -> None:
    fitted_column = pytest.importorskip("transform.analyzers.fitted")
    plain = {"name": "a", "source": "a", "group": "g", "output": "packed_int", "position": 0}
    hashed = Column(kind="hash", vocabulary_size=9, **plain)
    learned = Column(kind="vocabulary", vocabulary_size=9, vocabulary="a", extra_ids=2, **plain)
    nothing = fitted_column.FittedColumn()
    assert number_of_ids(None, [hashed], nothing) == {"ids": 9}
    assert number_of_ids(None, [learned], nothing) == {"values": 7, "ids": 9}
