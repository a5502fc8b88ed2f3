"""Names, kinds and expectations of what each group becomes."""

from __future__ import annotations

from typing import Any

import pytest

from transform import FeatureSpec
from transform.resolve.output_columns import _cross_column, check_output_names, output_columns
from transform.spec.features import Cross
from transform.spec.group import Group, ResolvedGroup


def _outputs(*columns: str, **options: Any) -> list[tuple[str, str]]:
    group = Group.model_validate({"name": "g", "columns": columns, **options})
    return [(c.name, c.kind) for c in output_columns(ResolvedGroup(group, columns))]


def test_names_and_kinds() -> None:
    assert _outputs("a", "b", scale="robust", missing_indicator=True) == [
        *(("a", "robust"), ("b", "robust")),
        *(("a_missing", "missing_indicator"), ("b_missing", "missing_indicator")),
    ]
    assert _outputs("v", scale="none", length=2) == [("v_0", "none"), ("v_1", "none")]
    assert _outputs("w", encode={"one_hot": {"values": ["x"]}}) == [
        *(("w=x", "one_hot"), ("w_other", "one_hot"), ("w_missing", "missing_indicator")),
    ]
    assert [name for name, _ in _outputs("t", encode={"multi_hot": {"top_k": 2}})] == [
        *("t#0", "t#1", "t_other", "t_missing"),
    ]
    date = {"parts": ["hour"], "cyclic": True}
    assert _outputs("d", encode={"date": date}) == [
        ("d_hour_sin", "cyclic"),
        ("d_hour_cos", "cyclic"),
    ]
    assert _outputs("d", encode={"date": {"parts": ["hour", "year"]}}) == [
        *(("d_hour", "date"), ("d_year", "date")),
    ]


def test_a_cross_is_named_by_itself_and_its_columns() -> None:
    cross = Cross.model_validate({"name": "c", "columns": ["a", "b"], "encode": "vocabulary"})
    column = _cross_column(cross)
    assert (column.name, column.source, column.kind) == ("c", "a x b", "vocabulary")
    pairs = ["a", "b x c"], ["a x b", "c"], ["a", "b", "c"]
    crosses = [Cross(name="c", columns=tuple(each), encode=cross.encode) for each in pairs]
    assert len({_cross_column(each).source for each in crosses}) == 3


def test_two_outputs_of_one_name_are_refused() -> None:
    groups = [
        {"name": "g", "columns": ["a"], "scale": "none", "missing_indicator": True},
        {"name": "h", "columns": ["a_missing"], "scale": "none"},
    ]
    spec = FeatureSpec.model_validate({"groups": groups})
    resolved = [ResolvedGroup(group, group.columns) for group in spec.groups]
    with pytest.raises(ValueError, match="'a_missing' is the missing indicator of 'a' and in gr"):
        check_output_names(spec, resolved)
