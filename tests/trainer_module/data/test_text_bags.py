"""Which packed positions belong to a text."""

from __future__ import annotations

from text_layout import layout_of_texts

from trainer_module.data.text_bags import _TextBag, other_places, text_bags


def test_ids_and_weights_are_paired_in_order() -> None:
    layout = layout_of_texts()
    a, b = text_bags(layout)
    assert a == _TextBag(
        source="a",
        count=5,
        ids=(("packed_int", 0), ("packed_int", 1)),
        weights=(("packed_float", 1), ("packed_float", 2)),
    )
    assert b == _TextBag("b", 9, (("packed_int", 3),), (("packed_float", 3),))
    assert other_places([a, b], "packed_float", 4) == [0]
    assert other_places([a, b], "packed_int", 4) == [2]


def test_without_packing_each_place_is_a_feature() -> None:
    a, _ = text_bags(layout_of_texts(packed=False))
    assert a.ids == (("a_term_0", 0), ("a_term_1", 0))
    assert a.weights == (("a_weight_0", 0), ("a_weight_1", 0))
    assert other_places([a], "a_term_0", 1) == []
