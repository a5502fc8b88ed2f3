"""A new encoder or scaler is its options, its record and its name in the table: no more is asked.

The made-up ones run through Transform on Beam and `features explain`; the reference is NumPy, ids
exactly, float32 to 1e-6.
"""

from __future__ import annotations

import pathlib
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
tft = pytest.importorskip("tensorflow_transform")

from components.normalization_validator.check import RULES  # noqa: E402
from transform.block import Block, IdCount  # noqa: E402
from transform.encode.encoder import Encoder, Inputs, Members  # noqa: E402
from transform.encode.table import ENCODERS  # noqa: E402
from transform.scale.scaler import (  # noqa: E402
    Scaler,
    Statistic,
    ToScale,
    ValidationRule,
    linear,
)
from transform.scale.table import SCALERS  # noqa: E402
from transform.spec.encoders import Encode, Options  # noqa: E402
from transform.spec.features import _CROSS_ENCODERS, FeatureSpec  # noqa: E402
from transform.spec.group import (  # noqa: E402
    Group,
    Scale,
    _AnyScale,
)

WORDS = ["a", "bb", None, "cccc", "ccccccc", "bb"]
FARES = [1.0, 2.0, None, 9.0, 4.0, 5.0]
TIPS = [3.0, 1.0, 2.0, None, 0.0, 8.0]
ROOT = pathlib.Path(__file__).parents[2]
README, NORMALISATION = ROOT / "transform" / "README.md", ROOT / "docs" / "normalisation.md"


class Length(Options):
    """Ids are the texts' lengths: 0..longest, then one for missing."""

    longest: int


def _lengths(inputs: Inputs, members: Members) -> list[Block]:
    texts = inputs.dense.texts(members.names)
    longest = np.asarray([option.longest for option in members.options], np.int64)
    missing = tf.equal(texts, "")
    ids = tf.minimum(tf.cast(tf.strings.length(texts), tf.int64), longest)
    sizes = tuple(IdCount(int(each) + 2) for each in longest)
    return [
        Block(members.names, tf.where(missing, longest + 1, ids), members.names, missing, sizes)
    ]


class _Span(NamedTuple):
    """Statistic that no other scaler has."""

    low: Any
    span: Any


def _analyze(x: Any, statistics: Any) -> _Span:
    present = tf.where(tf.math.is_nan(x), tf.constant(np.inf, tf.float64), x)
    low = -tft.max(-present, reduce_instance_dims=False)
    return _Span(low, statistics.maximum - statistics.minimum)


SPAN = Statistic("span", analyze=_analyze)


def _halved(columns: ToScale) -> Any:
    found = columns.learned[SPAN.name]
    return linear(columns.x, found.low, found.span, columns.statistics.varies) / 2.0


LENGTH = Encoder(name="length", takes={"string": ""}, reads="texts", apply=_lengths)
HALVED = Scaler(
    name="halved",
    apply=_halved,
    requires=(SPAN,),
    explain=lambda fitted: {"span": fitted.values[SPAN.name]["span"]},
    validation_rule=ValidationRule("halved", {"max": (None, 0.5)}),
)


class _Encode(Encode):
    length: Length | None = None


class _Group(Group):
    scale: _AnyScale | Literal["halved"] | None = None
    encode: _Encode | None = None


class _Spec(FeatureSpec):
    groups: tuple[_Group, ...] = ()


@pytest.mark.slow
def test_it_is_transformed_and_explained(run_transform: Any, monkeypatch: Any) -> None:
    from pipeline.features.features_explain import step_text
    from transform import column_cautions, column_chains

    groups = [
        {"name": "known", "columns": ["tip"], "scale": "z_score"},
        {"name": "words", "columns": ["word"], "encode": {"length": {"longest": 4}}},
        {"name": "money", "columns": ["fare"], "scale": "halved", "missing_indicator": True},
    ]
    monkeypatch.setitem(ENCODERS, "length", LENGTH)
    monkeypatch.setitem(SCALERS, "halved", HALVED)
    for reader in ("transform.preprocessing", "transform.chains"):
        monkeypatch.setattr(f"{reader}.FeatureSpec", _Spec)
    columns = {"tip": TIPS, "word": WORDS, "fare": FARES}
    result = run_transform({"groups": groups}, columns, batch_size=4)
    lengths = [5 if word is None else min(len(word), 4) for word in WORDS]
    assert result.column("word").tolist() == lengths
    present = np.asarray([fare for fare in FARES if fare is not None])
    filled = np.asarray([present.mean() if fare is None else fare for fare in FARES])
    expected = (filled - present.min()) / np.ptp(present) / 2.0
    np.testing.assert_allclose(result.column("fare"), expected, rtol=1e-6)
    described = {c.name: (c.kind, c.vocabulary_size, c.bounds) for c in result.layout.columns}
    assert described["word"] == ("length", 6, None)
    assert described["fare"] == ("halved", None, {"max": (None, 0.5)})
    steps = {chain.column: [*map(step_text, chain.steps)] for chain in column_chains(result.uri)}
    assert steps["word"] == ["encode length: longest 4, ids 6"]
    assert steps["fare"] == ["impute mean: 4.2", "scale halved: span 8"]
    assert column_cautions(result.uri) == []


def test_tables_agree() -> None:
    """Of the spec, of encoders and scalers, and of the validator."""
    assert set(Encode.model_fields) == set(ENCODERS)
    assert {name for name, e in ENCODERS.items() if e.of_texts} == set(_CROSS_ENCODERS)
    assert all(name == each.name for table in (ENCODERS, SCALERS) for name, each in table.items())
    rules = [scaler.validation_rule for scaler in SCALERS.values() if scaler.validation_rule]
    assert {rule.name for rule in rules if not rule.bounds} == set(RULES)
    assert not {rule.name for rule in rules if rule.bounds} & set(RULES)


def test_the_docs_name_it() -> None:
    """Every one has its row in the README, and a scale its formula in docs/normalisation.md."""
    for name in [*Encode.model_fields, *get_args(Scale)]:
        pages = [README, *([NORMALISATION] if name in get_args(Scale) else [])]
        for page in pages:
            lines = page.read_text(encoding="utf-8").splitlines()
            assert any(f"`{name}" in line for line in lines), f"{page} does not mention {name}"
