"""The graph that `preprocessing_fn` builds, and the tables of the encoders and scalers in it."""

from __future__ import annotations

import pathlib
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

tf = pytest.importorskip("tensorflow")

from components.normalization_validator.check import RULES  # noqa: E402
from transform import preprocessing_fn  # noqa: E402
from transform.encode.table import ENCODERS  # noqa: E402
from transform.preprocessing import _pack_bits  # noqa: E402
from transform.scale.table import SCALERS  # noqa: E402
from transform.spec.encoders import Encode  # noqa: E402
from transform.spec.features import _CROSS_ENCODERS  # noqa: E402
from transform.spec.group import Scale  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
README, ENCODING = ROOT / "transform" / "README.md", ROOT / "docs" / "encoders.md"


def test_the_graph_hardly_grows_with_the_number_of_columns() -> None:
    """Its size is that of the spec."""
    spec = {"groups": [{"name": "g", "columns": "V*", "scale": "z_score"}]}

    def nodes(columns: int, sparse: bool) -> int:
        with tf.Graph().as_default() as graph:
            make = tf.compat.v1.sparse_placeholder if sparse else tf.compat.v1.placeholder
            shape = [None, None if sparse else 1]
            inputs = {f"V{i}": make(tf.float32, shape) for i in range(columns)}
            before = len(graph.get_operations())
            preprocessing_fn(inputs, {"features": spec})
            return len(graph.get_operations()) - before

    assert nodes(97, sparse=True) - nodes(33, sparse=True) == 64
    assert nodes(97, sparse=False) - nodes(33, sparse=False) == 0


@given(hnp.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 100))))
@settings(max_examples=30)
def test_bits_are_packed_by_32(bits: np.ndarray) -> None:
    words = _pack_bits(tf.constant(bits)).numpy()
    assert words.shape == (len(bits), -(-bits.shape[1] // 32))
    for i in range(bits.shape[1]):
        np.testing.assert_array_equal((words[:, i // 32] >> (i % 32)) & 1, bits[:, i])


def test_tables_agree() -> None:
    """Of the spec, of encoders and scalers, and of the validator."""
    assert set(Encode.model_fields) == set(ENCODERS)
    assert {name for name, e in ENCODERS.items() if e.of_texts} == set(_CROSS_ENCODERS)
    assert all(name == each.name for table in (ENCODERS, SCALERS) for name, each in table.items())
    rules = [each.validation_rule for each in SCALERS.values() if each.validation_rule]
    assert {rule.name for rule in rules if not rule.bounds} == set(RULES)
    assert not {rule.name for rule in rules if rule.bounds} & set(RULES)


def test_the_docs_name_it() -> None:
    """An encoder in docs/encoders.md, a scaler in the README with its formula."""
    for page, names in ((ENCODING, [*Encode.model_fields]), (README, get_args(Scale))):
        lines = page.read_text(encoding="utf-8").splitlines()
        for name in names:
            assert any(f"`{name}" in line for line in lines), f"{page} does not mention {name}"
