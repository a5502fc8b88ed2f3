"""Products with the Hessian. Reference: tape.jacobian of the gradient in float64, 1e-6."""

from __future__ import annotations

import full_batch
import numpy as np
import pytest
import tensorflow as tf

from trainer_module import hessian_vector_product, largest_eigenvalue


def hessian(model, kind, data):
    """Return the matrix `[parameters, parameters]`."""
    variables = [v.value for v in model.trainable_variables]
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as tape:
            loss = full_batch.full_batch_loss(model, kind, *data)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], 0)
    zero = tf.UnconnectedGradients.ZERO
    blocks = outer.jacobian(
        flat, variables, unconnected_gradients=zero, experimental_use_pfor=False
    )
    return np.concatenate([np.reshape(b, (flat.shape[0], -1)) for b in blocks], 1)


def split(flat, model):
    sizes = [int(np.prod(v.shape)) for v in model.trainable_variables]
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    return [p.reshape(v.shape) for p, v in zip(parts, model.trainable_variables, strict=True)]


@pytest.mark.parametrize(
    ("kind", "micro_batch_size"),
    [("multiclass", 3), ("multiclass", 64), ("embeddings", 3), ("two_in_two_out", 3)],
)
def test_products_are_those_of_the_whole_hessian(float64, kind, micro_batch_size):
    model = full_batch.MODELS[kind]()
    data = full_batch.batch(kind)
    matrix = hessian(model, kind, data)
    vector = np.random.default_rng(0).normal(size=len(matrix))
    found = hessian_vector_product(
        model,
        full_batch.loss_for(kind),
        *data,
        vector=split(vector, model),
        micro_batch_size=micro_batch_size,
    )
    wanted = matrix @ vector
    flat = np.concatenate([np.ravel(t) for t in found])
    np.testing.assert_allclose(flat, wanted, rtol=1e-6, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["none", "mirrored2"])
def test_the_largest_eigenvalue(float64, strategies, name):
    strategy = strategies[name]
    with strategy.scope():
        model = full_batch.mlp()
    data = full_batch.batch("mlp", rows=8)
    wanted = np.linalg.eigvalsh(hessian(model, "mlp", data))[-1]
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(8)
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
    with strategy.scope():
        found = largest_eigenvalue(model, "mse", *batch, micro_batch_size=3, tolerance=1e-7)
    np.testing.assert_allclose(found.value, wanted, rtol=1e-6)
    assert found.residual <= 1e-7 * found.value
    assert found.iterations <= 43  # parameters
    product = hessian_vector_product(model, "mse", *data, vector=found.vector, micro_batch_size=8)
    assert full_batch.error(product, [wanted * v for v in found.vector]) < 1e-4


def test_models_without_trainable_variables_are_rejected():
    model = full_batch.mlp()
    model.trainable = False
    with pytest.raises(ValueError, match="has no trainable variables"):
        largest_eigenvalue(model, "mse", *full_batch.batch("mlp"), micro_batch_size=2)
