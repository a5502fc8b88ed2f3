"""Trace one micro-batch of a model, to learn what the loop over micro-batches needs."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from trainer_module.checks.batch import check_batch
from trainer_module.checks.model import reject_assignments
from trainer_module.checks.randomness import reject_stateful_draws
from trainer_module.checks.row_independence import MOST_ROWS, check_rows_are_independent
from trainer_module.common.tensors import Tensors, present_leaves, with_leaves
from trainer_module.window.gradient_sum import sum_dtype
from trainer_module.window.micro_batch import MicroBatchGradients, micro_batch_gradients
from trainer_module.window.spec import Batch, StepInputs, WindowSpec
from trainer_module.window.trace import bytes_per_row, has_loops

# Rows that hold so little are checked together even if a micro-batch has fewer.
_CHECKED_BYTES = 16 * 2**20


class Description(NamedTuple):
    """Properties of a model that a trace of one micro-batch shows.

    Attributes:
        has_gradient: Per trainable variable, whether the loss depends on it.
        has_added_gradient: The same for the losses that layers pass to `add_loss`; None for a model
            without such losses.
        accumulator_dtype: Dtype of the scalar sums.
        outputs: Number of outputs if each has a separate Σ w_i; None if all share one.
        bytes_per_row: Upper bound of the memory of one row's activations and their gradients, in
            bytes. It is infinite if the trace does not show it, such as for loops whose number of
            iterations depends on the data. An axis of unknown length counts as 1.
        has_loops: Whether the model has loops, as recurrent layers do.
    """

    has_gradient: tuple[bool, ...]
    has_added_gradient: tuple[bool, ...] | None
    accumulator_dtype: tf.DType
    outputs: int | None
    bytes_per_row: float
    has_loops: bool

    @property
    def separate(self) -> bool:
        """Whether a micro-batch has more than one gradient per variable."""
        return self.has_added_gradient is not None or self.outputs is not None


def describe(spec: WindowSpec, batch: Batch) -> Description:
    """Trace one micro-batch of the batch's shapes, check it, and return its description.

    Raises:
        ValueError: The loss depends on no trainable variable, the model assigns to a variable, or
            the model draws random numbers that no seed determines.
    """
    check_batch(*batch)
    signature = _signature(batch)
    sums, graph = _trace(spec, signature, separate=False)
    numerator = sums.numerator
    if sums.added_loss is not None or numerator.shape.rank:
        sums, graph = _trace(spec, signature, separate=True)
    gradients, added = sums.gradients, sums.added_gradients
    if all(gradient is None for gradient in (*gradients, *(added or ()))):
        raise ValueError(
            "the loss depends on no trainable variable: check that the model has trainable "
            "layers and that the loss function uses the outputs that it is given."
        )
    reject_assignments(graph)
    reject_stateful_draws(graph)
    return Description(
        has_gradient=tuple(g is not None for g in gradients),
        has_added_gradient=None if added is None else tuple(g is not None for g in added),
        accumulator_dtype=sum_dtype(spec.model),
        outputs=numerator.shape[0] if numerator.shape.rank else None,
        bytes_per_row=bytes_per_row(graph),
        has_loops=has_loops(graph),
    )


@tf.autograph.experimental.do_not_convert
def check_rows(spec: WindowSpec, batch: Batch, description: Description) -> bool:
    """Check with rows of a batch that rows do not influence each other.

    Raises:
        ValueError: Rows influence each other.
    """
    # A forward pass in float64 needs about as much memory per row as one in float32 and its
    # gradient. So the check needs as much as a micro-batch, or little.
    room = _CHECKED_BYTES // max(description.bytes_per_row, 1)
    return check_rows_are_independent(
        spec.model,
        spec.loss_fn,
        batch,
        added_losses=spec.added_losses,
        most_rows=max(spec.micro_batch_size, int(min(room, MOST_ROWS))),
    )


def _signature(batch: Batch) -> Batch:
    specs = [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in present_leaves(batch)]
    return with_leaves(batch, specs)


def _trace(
    spec: WindowSpec, signature: Batch, *, separate: bool
) -> tuple[MicroBatchGradients, tf.Graph]:
    """Return the sums of one micro-batch of these specs, and the graph that computes them."""
    found: list[MicroBatchGradients] = []

    def probe(*batch: Tensors) -> None:
        inputs = StepInputs(random_position=(0,))
        found.append(micro_batch_gradients(spec, Batch(*batch), inputs, separate=separate))

    traced = tf.function(probe, autograph=False).get_concrete_function(*signature)
    return found[-1], traced.graph
