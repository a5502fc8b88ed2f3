"""TF-IDF of texts against scikit-learn's TfidfVectorizer on the same words, to 1e-5."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sklearn")

from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: E402

pytestmark = pytest.mark.slow
TEXTS = [
    "The cat sat on the mat, the CAT!",
    "A dog. A dog? A dog and the cat",
    None,
    "",
    "!!! ... ???",
    "NAÏVE café; naïve Café — ÅNGSTRÖM",
    "火事だ 火事 Tokyo 🔥🔥 tokyo",
    "हिन्दी भाषा हिन्दी",
    "don't DON'T won’t",
    "the cat sat",
    "never seen before words",
    "cat",
    "http://t.co/a1 #cat @cat cat_cat 3.14",
    "line\nbreak\r\nand \\ backslash\ttab",
]
PAD = 40  # more places than any of these texts has terms


def python_words(text: str | None) -> list[str]:
    """The rule of encode/words.py in Python, one character at a time."""
    found: list[str] = [""]
    for char in (text or "").lower():
        category = unicodedata.category(char)
        name = unicodedata.name(char, "")
        alone = category == "So" or name.startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA"))
        if char in "\ufffd\ufe0e\ufe0f" or (category[0] not in "LMN" and not alone):
            found.append("")
        elif alone:
            found += [char, ""]
        else:
            found[-1] += char
    return [word for word in found if word]


def vectorizer(**options: Any) -> TfidfVectorizer:
    """scikit-learn's, with our words; its terms join words by a space."""
    return TfidfVectorizer(tokenizer=python_words, token_pattern=None, lowercase=False, **options)


def weights_by_term(result: Any, assets: Any, name: str) -> list[dict[str, float]]:
    """Of each row, term -> weight, of what Beam wrote."""
    lines = assets(result)[name]
    terms = [line.split(" ", 1)[1].replace("_", " ") for line in lines]
    columns = result.layout.columns
    ids, weights = (
        np.stack(
            [result.written[c.output][:, c.position] for c in columns if c.kind == kind], axis=1
        )
        for kind in ("text", "text_weight")
    )
    rows = []
    for row_ids, row_weights in zip(ids, weights, strict=True):
        held = row_weights > 0
        assert (row_ids[~held] == len(terms)).all()
        assert (np.diff(row_weights) <= 0).all()
        rows.append(
            {terms[i]: w for i, w in zip(row_ids[held], row_weights[held].tolist(), strict=True)}
        )
        assert len(rows[-1]) == held.sum()  # each term once
    return rows


@pytest.mark.parametrize(
    "options", [{"ngrams": 2}, {"ngrams": 1, "sublinear_tf": True}, {"ngrams": 3, "min_count": 2}]
)
def test_weights_are_those_of_scikit_learn(
    run_transform: Any, assets: Any, options: dict[str, Any]
) -> None:
    options = {"min_count": 1, "max_terms": PAD, **options}
    group = {"name": "g", "columns": "said", "encode": {"text": options}}
    result = run_transform({"groups": [group]}, {"said": TEXTS}, batch_size=3)
    reference = vectorizer(
        ngram_range=(1, options["ngrams"]),
        min_df=options["min_count"],
        sublinear_tf=options.get("sublinear_tf", False),
    )
    expected = reference.fit_transform(TEXTS).toarray()
    names = reference.get_feature_names_out()
    found = weights_by_term(result, assets, "said")
    assert sorted(line.split(" ", 1)[1] for line in assets(result)["said"]) == sorted(
        name.replace(" ", "_") for name in names
    )
    for row, weights in zip(expected, found, strict=True):
        wanted = {name: w for name, w in zip(names, row, strict=True) if w > 0}
        assert weights == pytest.approx(wanted, abs=1e-5)
