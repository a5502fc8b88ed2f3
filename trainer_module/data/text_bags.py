"""Find the positions of the packed features that hold the terms of a text, and their weights.

Transform writes a text as several id columns of kind `text` and as many float columns of kind
`text_weight`, both by decreasing weight: the i-th weight is that of the i-th id. Places without a
term have weight 0.
"""

from __future__ import annotations

from typing import NamedTuple

from shared_core.feature_layout import Column, FeatureLayout

TERM, WEIGHT = "text", "text_weight"  # column kinds


class _TextBag(NamedTuple):
    """The terms of one text column."""

    source: str  # the raw or derived column
    count: int  # number of ids, including the last one, which stands for places without a term
    ids: tuple[tuple[str, int], ...]  # (transformed feature, position in it) of each place
    # (transformed feature, position in it) of each place's weight
    weights: tuple[tuple[str, int], ...]


def text_bags(layout: FeatureLayout | None) -> list[_TextBag]:
    """Return the texts of a layout; empty without a layout."""
    members: dict[tuple[str, str], dict[str, list[Column]]] = {}
    for column in layout.columns if layout is not None else ():
        if column.kind in (TERM, WEIGHT):
            kinds = members.setdefault((column.group, column.source), {TERM: [], WEIGHT: []})
            kinds[column.kind].append(column)
    return [
        _TextBag(
            source=source,
            count=kinds[TERM][0].vocabulary_size or 1,
            ids=tuple((column.output, column.position) for column in kinds[TERM]),
            weights=tuple((column.output, column.position) for column in kinds[WEIGHT]),
        )
        for (_, source), kinds in members.items()
    ]


def other_places(bags: list[_TextBag], feature: str, width: int) -> list[int]:
    """Return the positions of a feature that belong to no text, out of `width` positions."""
    of_texts = {
        place for bag in bags for name, place in (*bag.ids, *bag.weights) if name == feature
    }
    return [place for place in range(width) if place not in of_texts]
