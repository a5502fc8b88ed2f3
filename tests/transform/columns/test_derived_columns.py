"""Derived columns are transformed and served, and an operation that fails names `derive`."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

TEXTS = ["1", "2", "30", "4"]
X = [1.0, None, 3.0, 4.0]
SCALED = {"name": "g", "scale": "z_score"}


@pytest.fixture
def derive(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], str]:
    """`derive(function)` puts the function where a spec can name it."""
    module = types.ModuleType("derive_for_tests")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def add(function: Any) -> str:
        setattr(module, function.__name__, function)
        return f"{module.__name__}.{function.__name__}"

    return add


def durations(inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    from transform import dense_numbers, dense_texts

    seconds = tf.strings.to_number(dense_texts(inputs["text"], "text"))
    return {
        "minutes": seconds / 60.0,
        "trip hours": seconds / 3600.0,
        "double": dense_numbers(inputs["x"]) * 2.0,
        "same": inputs["x"],
    }


@pytest.mark.slow
def test_an_error_inside_beam_names_derive_and_the_operation(
    run_transform: Any, derive: Any
) -> None:
    spec = {"derive": derive(durations), "groups": [{**SCALED, "columns": ["minutes", "double"]}]}
    with pytest.raises(ValueError, match="correctly convert string: three") as caught:
        run_transform(spec, {"text": ["1", "2", "three", "4"], "x": X})
    assert "{{node derive/StringToNumber}}" in str(caught.value)


@pytest.mark.slow
def test_what_is_derived_is_transformed_and_served(run_transform: Any, derive: Any) -> None:
    """Reference: NumPy; and what Beam wrote, bit for bit."""
    columns = ["minutes", "trip hours", "double", "same"]
    spec = {
        "derive": derive(durations),
        "groups": [{**SCALED, "columns": columns}],
    }
    result = run_transform(spec, {"text": TEXTS, "x": X})
    seconds = np.asarray(TEXTS, np.float64)
    expected = (seconds - seconds.mean()) / seconds.std()
    for name in columns[:2]:
        np.testing.assert_allclose(result.column(name), expected, rtol=1e-6)
    present = np.asarray([2.0, 6.0, 8.0])
    filled = np.asarray([2.0, present.mean(), 6.0, 8.0])
    expected = (filled - present.mean()) / present.std()
    np.testing.assert_allclose(result.column("double"), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(result.column("same"), expected, rtol=1e-6, atol=1e-7)
    served = result.output.transform_features_layer()(result.raw())
    np.testing.assert_array_equal(served["packed_float"], result.written["packed_float"])
