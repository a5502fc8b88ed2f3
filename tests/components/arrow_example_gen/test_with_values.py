"""Rows that have a value for each of some columns."""

from __future__ import annotations

import pytest

tf = pytest.importorskip("tensorflow")

from components.arrow_example_gen.with_values import has_values  # noqa: E402


def example(**values):
    made = tf.train.Example()
    for name, value in values.items():
        feature = made.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        elif value is not None:
            feature.float_list.value.append(value)
        else:
            feature.SetInParent()
    return made


@pytest.mark.parametrize("value", [0, -1, 0.0, 2.5, b"no"])
def test_zeros_are_values(value):
    assert has_values(example(label=value, other=None), ["label"])


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), b""])
def test_what_transform_takes_as_missing_is_none(value):
    assert not has_values(example(label=value, other=1), ["label"])
    assert not has_values(example(other=1), ["label"])
    assert not has_values(example(a=1, b=value), ["a", "b"])
