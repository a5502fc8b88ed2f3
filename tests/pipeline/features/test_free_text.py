"""Free text is distinguished from codes, names and URLs by its values, in simulated tables."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import yaml

from pipeline.features.column_facts import measure
from pipeline.features.features_suggest import suggest
from pipeline.features.free_text import free_text

COMMON = [
    "the",
    "of",
    "a",
    "to",
    "in",
    "and",
    "is",
    "it",
    "was",
    "not",
    "very",
    "good",
    "bad",
    "film",
]
RARE = [f"word{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(3000)]


def _rows(make: Callable[[random.Random], str], n: int = 600) -> list[list[str]]:
    rng = random.Random(7)
    return [[make(rng)] for _ in range(n)]


def _sentence(rng: random.Random, words: int = 12) -> str:
    parts = [rng.choice(COMMON if rng.random() < 0.7 else RARE) for _ in range(words)]
    return " ".join(parts).capitalize() + "."


def test_sentences_are_free_text() -> None:
    rows = _rows(_sentence)
    found = free_text([None, *rows, None])
    assert found is not None
    assert found.words == pytest.approx(12)
    # Counted here: different words of a row, of which others hold each at least 3 times.
    held = [set(row[0].lower().rstrip(".").split()) for row in rows]
    often = {w for w in set().union(*held) if 3 <= sum(w in row for row in held) <= 540}
    expected = sum(len(row & often) for row in held) / sum(map(len, held))
    assert (found.again, found.least) == (pytest.approx(expected), 3)
    assert found.max_terms == 32  # 12 words and some of their pairs
    assert free_text([[row[0].encode()] for row in rows]) == found


def test_longer_texts_get_more_places() -> None:
    found = free_text(_rows(lambda rng: _sentence(rng, 60)))
    assert found is not None
    assert found.max_terms == 128
    found = free_text(_rows(lambda rng: _sentence(rng, 2_000), 60))
    assert found is not None
    assert found.max_terms == 256


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: str(uuid.UUID(int=rng.getrandbits(128))),
        lambda rng: f"https://shop.example/{rng.choice(COMMON)}/{rng.choice(RARE)}?page=the-end",
        lambda rng: f"{rng.randrange(10**6)} {rng.randrange(10**6)} {rng.randrange(10**6)} 12",
        lambda rng: f"{rng.choice(RARE).title()}, Mr. {rng.choice(COMMON)} {rng.choice(COMMON)}",
        lambda rng: " ".join(f"x{rng.getrandbits(64)}" for _ in range(8)),
        lambda rng: f"2024-05-{rng.randrange(1, 28)} 12:{rng.randrange(10, 60)}",
        lambda rng: f"Order {rng.getrandbits(40)}, placed by phone for our old customer",
        lambda rng: "",
    ],
    ids=["uuids", "urls", "numbers", "names", "random words", "dates", "forms", "empty"],
)
def test_other_texts_are_not(make: Callable[[random.Random], str]) -> None:
    assert free_text(_rows(make)) is None


@pytest.mark.parametrize("rows", [[], [None, None], [[""]]])
def test_no_text_is_none(rows: Sequence[Any]) -> None:
    assert free_text(rows) is None


def test_characters_without_spaces_are_words() -> None:
    found = free_text(_rows(lambda rng: "".join(rng.choices("今日は天気がいい火事だ", k=9))))
    assert found is not None
    assert found.words == pytest.approx(9)


def test_suggest_proposes_it(tmp_path: Any) -> None:
    rng = random.Random(3)
    lines = ["label,review,name"]
    lines += [
        f'{i % 2},"{_sentence(rng, 20)}",{rng.choice(RARE)} {rng.choice(RARE)}' for i in range(400)
    ]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    suggestion = suggest(measure(str(path)), str(path), label="label")
    (group,) = yaml.safe_load(suggestion.text)["features"]["groups"]
    assert group == {
        "name": "texts",
        "columns": ["review"],
        "encode": {"text": {"max_terms": 32}},
    }
    assert "400 different texts of 20 words on average" in suggestion.text
    assert [left.column for left in suggestion.left_out] == ["name"]


def test_texts_that_come_again_are_free_text_where_many_differ(tmp_path: Any) -> None:
    """A hash of the whole text would share nothing between texts."""
    rng = random.Random(5)
    comments = [_sentence(rng, 8) for _ in range(1_200)]
    path = tmp_path / "comments.csv"
    rows = [f'{i % 2},"{comments[i % 1_200]}"' for i in range(3_000)]
    path.write_text("\n".join(["label,comment", *rows]) + "\n", encoding="utf-8")
    suggestion = suggest(measure(str(path)), str(path), label="label")
    (group,) = yaml.safe_load(suggestion.text)["features"]["groups"]
    assert (group["name"], group["columns"]) == ("texts", ["comment"])
