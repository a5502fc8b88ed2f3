"""Bad arguments of the functions of gradients: an error names the argument and its value."""

from __future__ import annotations

import full_batch
import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import (
    clipped_gradient_sum,
    gradient_norms,
    input_gradients,
    integrated_gradients,
    per_example_gradients,
)

L = keras.layers
NAN = float("nan")
X, Y, W = full_batch.batch("mlp")


@pytest.fixture(scope="module")
def models():
    return {"mlp": full_batch.mlp(), "ids": ids_model()}


def ids_model():
    ids = keras.Input((2,), dtype="int64", name="ids")
    return keras.Model(ids, L.Dense(1)(L.Flatten()(L.Embedding(7, 3, name="table")(ids))))


def of_loss(function, **defaults):
    def call(models, features=X, labels=Y, weights=None, *, model="mlp", **options):
        return function(models[model], "mse", features, labels, weights, **{**defaults, **options})

    return call


def of_inputs(function, **defaults):
    def call(models, features=X, *, model="mlp", **options):
        return function(models[model], features, **{**defaults, **options})

    return call


CALLS = {
    "per_example": of_loss(per_example_gradients, chunk_size=3),
    "norms": of_loss(gradient_norms, chunk_size=3),
    "clipped_sum": of_loss(clipped_gradient_sum, chunk_size=3, clip_norm=1.0),
    "inputs": of_inputs(input_gradients, chunk_size=3),
    "integrated": of_inputs(integrated_gradients, chunk_size=3, steps=3),
}
COUNTS = [0, 1.5, "3", None, True]
NUMBERS = [0, -1.0, NAN, float("inf"), "0.1", True]
FUNCTIONS = ["mean", 3]
POSITIONS = [None, "0", (1.5,), (True,), (np.ones(2, int),)]
BAD = [
    *((name, "chunk_size", COUNTS) for name in ("per_example", "clipped_sum", "integrated")),
    *((name, "random_position", POSITIONS) for name in ("per_example", "norms", "clipped_sum")),
    *((name, "output", FUNCTIONS) for name in ("inputs", "integrated")),
    ("clipped_sum", "clip_norm", NUMBERS),
    ("integrated", "steps", [*COUNTS, 5000]),
    ("integrated", "embeddings", ["table", 3, [3], [["table"]]]),
    ("per_example", "reduce", FUNCTIONS),
    ("per_example", "over_rows", ["all", None, ["sum"]]),
]


def test_bad_options_are_reported(models):
    for call, option, values in BAD:
        for value in values:
            with pytest.raises(ValueError, match=option) as error:
                CALLS[call](models, **{option: value})
            assert str(value) in str(error.value)


BAD_ROWS = {
    "rank": (X[:, 0], r"\(11,\).*\(None, 5\)"),
    "width": (X[:, :4], r"\(11, 4\).*\(None, 5\)"),
    "text": (X.astype(str), "dtype string"),
    "complex": (X + 1j, "complex.*imaginary"),
    "objects": (X.astype(object), "dtype object"),
    "none": (None, "no tensor"),
    "empty": ([], "no tensor"),
    "several": ([X, X], "2 tensors"),
}


def test_features_that_do_not_fit_the_model_are_reported(models):
    for name in BAD_ROWS:
        features, message = BAD_ROWS[name]
        for call in ("per_example", "norms", "integrated"):
            with pytest.raises(ValueError, match=message):
                CALLS[call](models, features)


def test_bad_rows_are_reported(models):
    for call, arguments, message in [
        ("norms", {"weights": W.astype(str)}, "sample_weight has dtype string"),
        ("norms", {"labels": Y.astype(object)}, "labels hold a .* of dtype object"),
        ("inputs", {"output": lambda outputs: None}, "returned a NoneType: return a tensor"),
        ("inputs", {"output": lambda outputs: tf.reduce_mean(outputs, 0)}, "one number per row"),
        ("inputs", {"output": lambda o: tf.argmax(o, 1)}, "dtype int64 and therefore no gradient"),
        ("inputs", {"model": "ids", "features": np.ones((3, 2), int)}, "ids have no gradient"),
        ("integrated", {"baseline": X[:1].astype(str)}, "baseline has dtype string"),
        (
            "integrated",
            {
                "model": "ids",
                "features": np.ones((3, 2), int),
                "baseline": np.full((1, 2), 0.5),
                "embeddings": ["table"],
            },
            "baseline has dtype float64 .* where the features have int64",
        ),
        ("norms", {"model": "ids", "features": np.full((11, 2), 9)}, "an id is 9.*ids 0 to 6"),
    ]:
        with pytest.raises(ValueError, match=message):
            CALLS[call](models, **arguments)


def test_limits_out_of_the_range_of_float32(models):
    """No row is clipped, or all are clipped to the smallest number: none is NaN."""
    whole = CALLS["clipped_sum"](models, clip_norm=1e30)
    assert full_batch.error(CALLS["clipped_sum"](models, clip_norm=1e300), whole) < 1e-6
    zero = Y * 0
    assert np.all(np.isfinite(np.ravel(CALLS["clipped_sum"](models, X, zero, clip_norm=1e-300)[0])))
