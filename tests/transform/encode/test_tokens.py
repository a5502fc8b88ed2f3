"""Token ids: what two Beam runs write and serving computes, against the definition in Python."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from transform import FeatureLayout, column_chains

TEXTS = [
    "The cat sat on the mat, the mat!",
    "A dog. A CAT? a b c d e f",
    None,
    "",
    "?!",
    "naïve Café 火事 ok\nline",
    "the end",
]
LONGEST = 6
OPTIONS = {
    "plain": {"max_length": LONGEST},
    "few": {"top_k": 3, "max_length": 4},
    "Cased": {"lowercase": False, "max_length": LONGEST},
    "raw/bytes": {"split": "bytes", "max_length": 5},
}


def words_of(text: str, option: dict[str, Any]) -> list[str]:
    text = text if option.get("lowercase", True) is False else text.lower()
    # A Han character is a word.
    return re.findall(r"[火事]|[^\W火事]+", text)[: option["max_length"]]


def expected_ids(option: dict[str, Any], lines: list[str]) -> list[list[int]]:
    if option.get("split") == "bytes":
        return [[b + 2 for b in (t or "").lower().encode()[: option["max_length"]]] for t in TEXTS]
    places = {word: place + 2 for place, word in enumerate(lines)}
    return [[places.get(word, 1) for word in words_of(t or "", option)] for t in TEXTS]


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    spec = {
        "groups": [{"name": n, "columns": n, "encode": {"tokens": o}} for n, o in OPTIONS.items()]
    }
    return run_transform(spec, dict.fromkeys(OPTIONS, TEXTS), batch_size=3)


def test_ids_are_those_of_the_definition(result: Any, assets: Any) -> None:
    layout = result.layout
    assert layout.columns == ()
    assert [each.source for each in layout.tokens] == list(OPTIONS)
    for feature, option in zip(layout.tokens, OPTIONS.values(), strict=True):
        lines: list[str] = []
        if feature.vocabulary is not None:
            lines = assets(result)[feature.vocabulary]
            counts = Counter(word for t in TEXTS for word in words_of(t or "", option))
            assert sorted(lines, key=lambda word: -counts[word]) == lines
            assert [counts[w] for w in lines] == sorted(counts.values(), reverse=True)[: len(lines)]
            assert len(lines) == min(len(counts), option.get("top_k", 8000))
        assert feature.vocabulary_size == (258 if "split" in option else len(lines) + 2)
        expected = expected_ids(option, lines)
        width = max(map(len, expected))
        padded = [[*ids, *[0] * (width - len(ids))] for ids in expected]
        np.testing.assert_array_equal(result.written[feature.name], padded, feature.name)
    assert FeatureLayout.from_json(layout.to_json()) == layout


def test_serving_computes_what_was_written(result: Any) -> None:
    result.check_serving(alone=range(len(TEXTS)))


def test_the_schema_has_the_range_of_ids_and_no_fixed_length(result: Any) -> None:
    features = {f.name: f for f in result.output.transformed_metadata.schema.feature}
    for each in result.layout.tokens:
        assert features[each.name].int_domain.max == each.vocabulary_size - 1
        assert not features[each.name].HasField("shape")


def test_chains_explain_the_options(result: Any) -> None:
    chains = {chain.column: chain.steps[-1].numbers for chain in column_chains(result.uri)}
    assert chains["raw/bytes"]["ids"] == 258
    assert chains["few"]["ids"] == 5


def test_a_feature_has_a_name_of_its_own(run_transform: Any) -> None:
    groups = [
        {"name": "text", "columns": "a b", "encode": "tokens"},
        {"name": "number", "columns": "x", "scale": "z_score"},
    ]
    spec = {"groups": groups, "passthrough": ["a_b"]}
    columns = {"a b": ["one"], "a_b": ["two"], "x": [1.0]}
    with pytest.raises(ValueError, match=r"column 'a b' becomes the feature 'a_b'"):
        run_transform(spec, columns)
