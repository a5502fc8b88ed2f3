"""TF-IDF of texts against scikit-learn's TfidfVectorizer on the same words, to 1e-5."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sklearn")

from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: E402

from transform.encode.lookup import words  # noqa: E402

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
PLENTY = 40  # more places than any of these texts has terms
OPTIONS: dict[str, dict[str, Any]] = {
    "pairs": {"ngrams": 2, "min_count": 1, "max_terms": PLENTY},
    "threes": {"ngrams": 3, "max_terms": PLENTY, "sublinear_tf": True},
    "few": {"ngrams": 1, "min_count": 1, "max_terms": 3, "top_k": 20},
}
NEW = ["the cat", "unheard words alone", "", None, "Cat cat CAT, mat!", "火"]


def python_words(text: str | None) -> list[str]:
    """The rule of encode/words.py in Python, one character at a time."""
    found: list[str] = [""]
    is_closed = False  # the last word is a symbol or a character that stands alone
    for char in (text or "").lower():
        category, name = unicodedata.category(char), unicodedata.name(char, "")
        is_alone = category == "So" or name.startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA"))
        if char in "\ufffd\ufe0e\ufe0f" or not (category[0] in "LMN" or is_alone):
            found.append("")
            is_closed = False
        elif is_alone or (is_closed and category[0] != "M"):
            found.append(char)
            is_closed = is_alone
        else:
            found[-1] += char
    return [word for word in found if word]


def vectorizer(**options: Any) -> TfidfVectorizer:
    """scikit-learn's, with our words; its terms join words by a space."""
    return TfidfVectorizer(tokenizer=python_words, token_pattern=None, lowercase=False, **options)


@pytest.fixture(scope="module")
def result(run_transform: Any) -> Any:
    groups = [
        {"name": name, "columns": name, "encode": {"text": options}}
        for name, options in OPTIONS.items()
    ]
    return run_transform({"groups": groups}, dict.fromkeys(OPTIONS, TEXTS), batch_size=3)


def places_of(result: Any, outputs: Any, name: str, kind: str) -> np.ndarray:
    """The columns of one kind that a text became, `[rows, max_terms]`."""
    columns = [c for c in result.layout.columns if (c.source, c.kind) == (name, kind)]
    assert len(columns) == OPTIONS[name].get("max_terms", 64)
    return np.stack([np.asarray(outputs[c.output])[:, c.position] for c in columns], axis=1)


def weights_by_term(result: Any, assets: Any, outputs: Any, name: str) -> list[dict[str, float]]:
    """Of each row, term -> weight."""
    terms = [line.split(" ", 1)[1].replace("_", " ") for line in assets(result)[name]]
    ids, weights = (places_of(result, outputs, name, kind) for kind in ("text", "text_weight"))
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


def fitted_vectorizer(name: str, vocabulary: Any = None) -> TfidfVectorizer:
    options = OPTIONS[name]
    fitted = vectorizer(
        ngram_range=(1, options.get("ngrams", 2)),
        min_df=options.get("min_count", 2),
        sublinear_tf=options.get("sublinear_tf", False),
        vocabulary=vocabulary,
    )
    return fitted.fit(TEXTS)


def expected_weights(fitted: TfidfVectorizer, texts: list[str | None]) -> list[dict[str, float]]:
    names = fitted.get_feature_names_out()
    return [
        {name: w for name, w in zip(names, row, strict=True) if w > 0}
        for row in fitted.transform(texts).toarray()
    ]


@pytest.mark.slow
def test_weights_are_those_of_scikit_learn(result: Any, assets: Any) -> None:
    for name in ("pairs", "threes"):
        fitted = fitted_vectorizer(name)
        terms = sorted(line.split(" ", 1)[1] for line in assets(result)[name])
        assert terms == sorted(term.replace(" ", "_") for term in fitted.get_feature_names_out())
        found = weights_by_term(result, assets, result.written, name)
        for weights, wanted in zip(found, expected_weights(fitted, TEXTS), strict=True):
            assert weights == pytest.approx(wanted, abs=1e-5)


@pytest.mark.slow
def test_top_k_and_max_terms_keep_the_most_frequent_and_the_heaviest(
    result: Any, assets: Any
) -> None:
    terms = [line.split(" ", 1)[1] for line in assets(result)["few"]]
    assert len(terms) == 20
    wanted = expected_weights(fitted_vectorizer("few", terms), TEXTS)
    found = weights_by_term(result, assets, result.written, "few")
    for weights, expected in zip(found, wanted, strict=True):
        largest = sorted(expected.values(), reverse=True)[:3]
        assert list(weights.values()) == pytest.approx(largest, abs=1e-5)
        assert all(expected[term] == pytest.approx(w, abs=1e-5) for term, w in weights.items())
    assert max(map(len, wanted)) > 3
    # Of equal weights, the first of the text: each of these words is in one row alone.
    once = [word for word in ["ångström", "café"] if word in terms]
    assert [term for term in found[5] if term in once] == sorted(
        once, key=lambda word: TEXTS[5].lower().index(word)
    )


@pytest.mark.slow
def test_serving_computes_the_same_from_raw_texts(result: Any, assets: Any) -> None:
    layer = result.output.transform_features_layer()
    again = layer(result.raw())
    for name in ("packed_float", "packed_int", "packed_missing"):
        np.testing.assert_array_equal(np.asarray(again[name]), result.written[name])
    new = {
        name: tf.sparse.from_dense(tf.constant([[text or ""] for text in NEW])) for name in OPTIONS
    }
    served = layer(new)
    for name in ("pairs", "threes"):
        found = weights_by_term(result, assets, served, name)
        for weights, wanted in zip(
            found, expected_weights(fitted_vectorizer(name), NEW), strict=True
        ):
            assert weights == pytest.approx(wanted, abs=1e-5)
        assert found[1] == ({"words": pytest.approx(1.0)} if name == "pairs" else {})
        assert found[2] == found[3] == {}


_TEXTS = st.text(
    st.one_of(
        st.sampled_from("\x00aAbBéÉßİIıΣσς_'’ \t\n#@-.0٣½火事かカｶ한ไ🔥❤\ufe0f\u0301\u200d\ufffd"),
        # Below U+2E00, no character is Han or kana; Cn: a later Unicode may have given it a name.
        st.characters(max_codepoint=0x2DFF, exclude_categories=("Cs", "Cn")),
    ),
    max_size=20,
)


@given(st.lists(_TEXTS, min_size=1, max_size=4))
def test_words_are_those_of_the_rule(texts: list[str]) -> None:
    rows = words(tf.constant(texts)).to_list()
    found = [[word.decode() for word in row] for row in rows]
    assert found == [python_words(text) for text in texts]


@pytest.mark.slow
def test_words_do_not_depend_on_the_locale() -> None:
    """ICU lower-cases I to a dotless i in Turkish: training and serving would differ."""
    code = (
        "import tensorflow as tf; from transform.encode.lookup import words; "
        "found = words(tf.constant(['TITLE İz Iı'])).values.numpy(); "
        "print(ascii([word.decode() for word in found]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = words(tf.constant(["TITLE İz Iı"])).values.numpy()
    assert [word.decode() for word in here] == ["title", "i\u0307z", "i\u0131"]
    assert done.stdout.strip() == ascii([word.decode() for word in here])
