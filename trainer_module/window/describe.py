"""Trace one micro-batch of a model, to learn what the loop over micro-batches needs."""

from __future__ import annotations

import re
from typing import NamedTuple

import tensorflow as tf

from trainer_module.checks.batch import check_batch
from trainer_module.checks.model import reject_assignments, why_not_compiled
from trainer_module.checks.padding import check_padding
from trainer_module.checks.randomness import reject_stateful_draws
from trainer_module.checks.row_independence import MOST_ROWS, check_rows_are_independent
from trainer_module.checks.warn_once import log_once
from trainer_module.common.tensors import Tensors, present_leaves, with_leaves
from trainer_module.window.batch_norm import batch_norm_calls
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
        is_compiled: Whether XLA compiles the passes.
    """

    has_gradient: tuple[bool, ...]
    has_added_gradient: tuple[bool, ...] | None
    accumulator_dtype: tf.DType
    outputs: int | None
    bytes_per_row: float
    has_loops: bool
    is_compiled: bool

    @property
    def separate(self) -> bool:
        """Whether a micro-batch has more than one gradient per variable."""
        return self.has_added_gradient is not None or self.outputs is not None


def describe(spec: WindowSpec, batch: Batch) -> Description:
    """Trace one micro-batch of the batch's shapes, check it, and return its description.

    Raises:
        ValueError: A token feature has no fixed length, the loss depends on no trainable variable,
            the model assigns to a variable, the
            model draws random numbers that no seed determines, or `jit_compile` is true and XLA
            cannot compile the model.
    """
    check_batch(*batch)
    for name in spec.token_features:
        _check_token_feature(name, batch.features)
    signature = _signature(batch)
    sums, graph = _trace(spec, signature, separate=False)
    numerator = sums.numerator
    separate = sums.added_loss is not None or bool(numerator.shape.rank)
    if separate:
        sums, graph = _trace(spec, signature, separate=True)
    gradients, added = sums.gradients, sums.added_gradients
    if all(gradient is None for gradient in (*gradients, *(added or ()))):
        raise ValueError(
            "the loss depends on no trainable variable: check that the model has trainable "
            "layers and that the loss function uses the outputs that it is given."
        )
    reject_assignments(graph)
    reject_stateful_draws(graph)
    loops = has_loops(graph)
    return Description(
        has_gradient=tuple(g is not None for g in gradients),
        has_added_gradient=None if added is None else tuple(g is not None for g in added),
        accumulator_dtype=sum_dtype(spec.model),
        outputs=numerator.shape[0] if numerator.shape.rank else None,
        bytes_per_row=bytes_per_row(graph),
        has_loops=loops,
        is_compiled=_is_compiled(spec, batch, has_loops=loops, separate=separate),
    )


@tf.autograph.experimental.do_not_convert
def check_rows(spec: WindowSpec, batch: Batch, description: Description) -> bool:
    """Check with rows of a batch that neither other rows nor padding influence a row.

    Raises:
        ValueError: They do.
    """
    if spec.token_features and tf.executing_eagerly():
        check_padding(spec.model, batch.features, spec.token_features)
    # A forward pass in float64 needs about as much memory per row as one in float32 and its
    # gradient. So the check needs as much as a micro-batch, or little.
    room = _CHECKED_BYTES // max(description.bytes_per_row, 1)
    with batch_norm_calls(spec.model, spec.batch_norm and "frozen"):  # all else is by row
        return check_rows_are_independent(
            spec.model,
            spec.loss_fn,
            batch,
            added_losses=spec.added_losses,
            most_rows=max(spec.micro_batch_size, int(min(room, MOST_ROWS))),
        )


def _check_token_feature(name: str, features: Tensors) -> None:
    tensor = features.get(name) if isinstance(features, dict) else None
    if tensor is None or tensor.shape.rank != 2 or tensor.shape[1] is None:
        raise ValueError(
            f"token_features has {name!r}, and the features are "
            f"{tf.nest.map_structure(lambda t: t.shape, features)}: give a dict in which it is "
            "[rows, length] of one length for all batches (padded_batch with padded_shapes)."
        )


def _is_compiled(spec: WindowSpec, batch: Batch, *, has_loops: bool, separate: bool) -> bool:
    """Return whether XLA compiles the passes; "auto": on a GPU or with loops, if it can."""
    if spec.jit_compile is False:
        return False
    if spec.jit_compile == "auto" and spec.device_kind == "CPU" and not has_loops:
        return False
    reason = why_not_compiled(spec.model, batch.features)
    if spec.jit_compile is True and reason is not None:
        raise ValueError(f'jit_compile=True: {reason} jit_compile="auto" is XLA where it can be.')
    if spec.jit_compile == "auto" and reason is None:
        reason = _error_of_xla(spec, batch, separate=separate)
    what = ", recurrent layers" if spec.device_kind == "CPU" and has_loops else ""
    where = f"{spec.device_kind}{what}"
    state = f"compiled with XLA ({where})" if reason is None else f"without XLA: {reason}"
    log_once(f"step: {state}", about=spec.model)
    return reason is None


def _error_of_xla(spec: WindowSpec, batch: Batch, *, separate: bool) -> str | None:
    """Return why XLA cannot compile a micro-batch; None if it can."""
    specs = present_leaves(_signature(batch, rows=2))
    if not all(spec.shape.is_fully_defined() for spec in specs):
        return "axes of the rows differ in size from batch to batch."

    def probe(*leaves: tf.Tensor) -> list[tf.Tensor]:
        inputs = StepInputs(random_position=(0,))
        sums = micro_batch_gradients(spec, with_leaves(batch, leaves), inputs, separate=separate)
        return [x for x in tf.nest.flatten(sums, expand_composites=True) if x is not None]

    compiled = tf.function(probe, autograph=False, jit_compile=True)
    try:
        with tf.init_scope():
            compiled.experimental_get_compiler_ir(*specs)(stage="hlo")
    except (ValueError, tf.errors.OpError) as error:
        found = _UNSUPPORTED.search(str(error))
        return f"XLA does not support {found[1]}." if found else str(error).splitlines()[0]
    return None


# An operation in an error of XLA.
_UNSUPPORTED = re.compile(r"unsupported operations .*?: (\w+) \(", re.DOTALL)


def _signature(batch: Batch, rows: int | None = None) -> Batch:
    specs = [tf.TensorSpec([rows, *t.shape[1:]], t.dtype) for t in present_leaves(batch)]
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
