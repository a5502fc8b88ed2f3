"""Measure the sharpness of a trained model: the largest eigenvalue of its loss' Hessian."""

from __future__ import annotations

import dataclasses
import math
import os
import time

from absl import logging

from trainer_module.common.progress import SharpnessMeasured, sharpness_text
from trainer_module.gradients.curvature import largest_eigenvalue
from trainer_module.loop.callbacks.progress_log import log_line
from trainer_module.loop.callbacks.tensorboard import write_scalars
from trainer_module.training.build import Built
from trainer_module.training.prepare import Prepared

_MOST_PRODUCTS = 30
_TOLERANCE = 1e-3  # largest residual, as a share of the eigenvalue
# Lanczos' method keeps a float64 vector of all parameters per product.
_MOST_BYTES = 2 << 30
# Memory of a product with the Hessian, in passes of as many rows for a gradient.
_PASSES = 4


def measure_sharpness(prepared: Prepared, built: Built, rows: int) -> SharpnessMeasured | None:
    """Measure the sharpness, log it and write it for TensorBoard.

    The loss is the training's, on the rows of `Examples.every`, with the model's current weights.
    The chief computes it alone, on one device. Nothing that fails here fails the training.

    Args:
        prepared: The prepared training.
        built: Its objects, after the training.
        rows: Largest number of training rows to measure it on.

    Returns:
        The sharpness; None if it cannot be measured, and on workers that are not the chief.
    """
    if not prepared.workers.is_chief:
        return None
    try:
        found = _measure(prepared, built, rows)
        if prepared.config.tensorboard and prepared.folders.run is not None:
            step = int(built.step.step.numpy())
            train = os.path.join(prepared.folders.run, "train")
            write_scalars(train, step, {"sharpness": found.value})
    except Exception as error:  # the trained model is worth more than its sharpness
        logging.warning("The sharpness is not known: %s", error)
        return None
    return found


def _measure(prepared: Prepared, built: Built, rows: int) -> SharpnessMeasured:
    model = built.model
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    products = min(_MOST_PRODUCTS, _MOST_BYTES // (8 * max(1, parameters)))
    if products < 2:
        raise ValueError(
            f"sharpness_rows={rows}: vectors of {parameters:,} parameters take more than 2 GiB; "
            "leave it out."
        )
    # Whole batches rather than a worker's share.
    examples = dataclasses.replace(built.examples, replicas=None)
    nth = -(-prepared.summary.rows // rows)
    features, labels, *weights = next(iter(examples.every(nth, rows)))
    start = time.monotonic()
    found = largest_eigenvalue(
        model,
        built.step.loss_fn,
        features,
        labels,
        *weights,
        micro_batch_size=-(-prepared.micro_batch_size // _PASSES),
        max_iterations=products,
        tolerance=_TOLERANCE,
        seed=prepared.config.seed,
    )
    record = SharpnessMeasured(
        value=found.value,
        residual=found.residual,
        rows=int(labels.shape[0]),
        products=found.iterations,
    )
    seconds = time.monotonic() - start
    log_line(f"{sharpness_text(record)}, {record.products} products, {seconds:.1f} s", record)
    return record
