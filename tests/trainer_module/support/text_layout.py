"""The layout of two texts beside a number and an id, as Transform writes it."""

from __future__ import annotations

from typing import Any

from shared_core.feature_layout import Column, FeatureLayout


def layout_of_texts(*, packed: bool = True) -> FeatureLayout:
    """A number, an id, and the texts `a` of two places and `b` of one."""
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("x", "z_score", {}),
        ("a_term_0", "text", {"vocabulary_size": 5}),
        ("a_term_1", "text", {"vocabulary_size": 5}),
        ("a_weight_0", "text_weight", {}),
        ("a_weight_1", "text_weight", {}),
        ("c", "vocabulary", {"vocabulary_size": 3}),
        ("b_term_0", "text", {"vocabulary_size": 9}),
        ("b_weight_0", "text_weight", {}),
    ]
    columns: list[Column] = []
    for name, kind, more in wanted:
        output = ("packed_int" if more else "packed_float") if packed else name
        position = sum(column.output == output for column in columns)
        columns.append(
            Column(
                name=name,
                source=name[:1],
                group="g",
                kind=kind,
                output=output,
                position=position,
                **more,
            )
        )
    return FeatureLayout(columns=tuple(columns))
