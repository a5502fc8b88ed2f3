"""Accumulate the gradients of a window's micro-batches in one loop inside the graph."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import keras
import tensorflow as tf

from trainer_module.checks.batch import count_rows
from trainer_module.checks.compiled import warn_compile_args_ignored
from trainer_module.checks.model import check_built, reject_custom_train_step
from trainer_module.common.keras_arguments import naming_replacements
from trainer_module.common.sequences import cut, level_of, levels, row_lengths, trimmed
from trainer_module.common.tensors import (
    LossLike,
    Tensors,
    Variable,
    map_present,
    present_leaves,
    with_leaves,
)
from trainer_module.devices.replicas import replica_kind
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.window.batch_norm import ghost_layers
from trainer_module.window.describe import Description, check_rows, describe
from trainer_module.window.gradient_sum import (
    AddedLosses,
    GradientSum,
    add_pass,
    default_added_losses,
    with_tables,
)
from trainer_module.window.micro_batch import MicroBatchGradients, micro_batch_gradients
from trainer_module.window.spec import (
    Batch,
    Index,
    Result,
    StepInputs,
    WindowSpec,
    even_size,
    part_of_rows,
    plan_passes,
)
from trainer_module.window.trace import is_compiled_by_xla, phase_scope

# With XLA on a CPU, a recurrent layer of more rows is divided among the cores at each of its steps:
# on two cores, a GRU took 34 ms of them for 256 rows at a time, and 24 ms for 64. Fewer rows occupy
# one core, so that two passes run in parallel.
_ROWS_PER_LOOP = 64


# Computes the sums of one micro-batch, as `micro_batch_gradients` does.
_MicroBatchFunction: TypeAlias = Callable[..., MicroBatchGradients]


@naming_replacements()
def accumulate_gradients(
    model: keras.Model,
    loss_fn: LossLike,
    features: Tensors,
    labels: Tensors,
    sample_weight: Tensors = None,
    *,
    micro_batch_size: int,
    jit_compile: bool = False,
    added_losses: AddedLosses | None = None,
    random_position: Sequence[Index] = (),
    loss_scale: tf.Tensor | None = None,
    expected_rows: int | None = None,
) -> GradientSum:
    """Return the sums over all rows, with the activations of one micro-batch in memory at a time.

    Small micro-batches are merged up to 128 MiB, on a GPU up to 1/64 of its memory. Rows are
    never padded: the last pass has the remaining rows only, so that no synthetic row causes a NaN
    or counts in an activity regulariser. Call it inside a `tf.function`.

    Args:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`, a Keras loss or its
            name (see `weighted_loss`).
        features: Tensor or structure of tensors `[rows, ...]`; rows may be 0.
        labels: Tensor or structure of tensors `[rows, ...]`.
        sample_weight: `[rows]`, at least 0; None: 1 for each row.
        micro_batch_size: Number of rows of one micro-batch. If it is larger than `rows`, there is
            one micro-batch.
        jit_compile: Whether to compile the sums with XLA. A shorter last micro-batch runs without
            XLA.
        added_losses: "mean" if the losses that layers pass to `add_loss` are means over rows, each
            pass then weighted by its number of rows; "sum" if they are sums over rows. None: the
            result of `default_added_losses`.
        random_position: Integers that identify the batch's position in the run, such as the step.
            Dropout masks are a function of the model's seeds, these integers and the pass.
        loss_scale: Factor of all gradients, for float16; the caller divides by it.
        expected_rows: Number of rows of most batches, if the shapes of the tensors do not have it.
            If one pass takes that many rows, the graph has a branch without the loops. The sums are
            also correct for any other number of rows.

    Raises:
        ValueError: micro_batch_size is below 1, the model is not built, a layer updates state when
            called, a feature is text and jit_compile is on, or the model overrides `compute_loss`.
            A model that overrides `train_step` is accepted, because its `train_step` may call this
            function.
    """
    if micro_batch_size < 1:
        raise ValueError(f"micro_batch_size={micro_batch_size}: use at least 1 row.")
    check_built(model)
    reject_custom_train_step(model, ("compute_loss",), by="accumulate_gradients")
    warn_compile_args_ignored(model, loss_fn)
    spec = WindowSpec(
        model=model,
        loss_fn=as_loss_function(loss_fn),
        added_losses=added_losses or default_added_losses(model),
        micro_batch_size=int(micro_batch_size),
        jit_compile=jit_compile,
        expected_rows=expected_rows,
        device_kind=replica_kind(tf.distribute.get_strategy()),
    )
    batch = Batch(features, labels, sample_weight)
    description = describe(spec, batch)
    check_rows(spec, batch, description)
    inputs = StepInputs(random_position, loss_scale)
    passes = Passes.of(spec, batch, description)
    return passes.sum(passes.split(batch, inputs), inputs)


class FullPasses(NamedTuple):
    """The rows of a window's passes of equal size, and the sums of the rows that are left.

    Attributes:
        rest: Sums of the rows that are left.
        batch: The rows of the passes. Shapes are constants in XLA, so there may be more rows than
            the passes take: no pass reads them, and windows with fewer passes need no other
            compilation.
        begin, end: The passes to sum, scalar int32.
    """

    rest: GradientSum
    batch: Batch
    begin: tf.Tensor
    end: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Passes:
    """How the rows of a window on one replica are summed: in passes of equal size, and a rest.

    Attributes:
        spec: The model, the loss and the micro-batch size.
        description: Of the window's batch.
        gradients: Computes the sums of a pass.
        size: Rows of a pass.
        parallel: Number of passes that run in parallel.
        expected_rows: Number of rows of most windows; None if unknown.
    """

    spec: WindowSpec
    description: Description
    gradients: _MicroBatchFunction
    size: int
    parallel: int
    expected_rows: int | None

    @classmethod
    def of(
        cls,
        spec: WindowSpec,
        batch: Batch,
        description: Description,
        gradients: _MicroBatchFunction = micro_batch_gradients,
        *,
        merge_micro_batches: bool = True,
    ) -> Passes:
        """Return the passes of windows with the shapes of a batch."""
        compiled, rows = description.is_compiled, spec.micro_batch_size
        is_ghost = spec.batch_norm == "ghost"  # its micro-batches have exactly so many rows
        merge_micro_batches = merge_micro_batches and not is_ghost
        plan = plan_passes(
            description.bytes_per_row * rows,
            kind=spec.device_kind,
            merge_micro_batches=merge_micro_batches,
            has_loops=description.has_loops,
            concurrent_passes=spec.placement.concurrent_passes,
        )
        expected = present_leaves(batch)[0].shape[0] or spec.expected_rows
        size, parallel = rows * plan.micro_batches, plan.parallel_passes
        if compiled:
            # XLA computes one pass after another. If four micro-batches were one pass, a window of
            # three would not be compiled, so that merging needs the number of rows.
            most, parallel = size * parallel if merge_micro_batches else rows, 1
            if spec.device_kind == "CPU" and description.has_loops and plan.micro_batches > 1:
                most, parallel = min(most // 2, max(rows, _ROWS_PER_LOOP)), 2
            size = rows if expected is None or is_ghost else even_size(expected, most)
        return cls(spec, description, gradients, size, parallel, expected)

    def split(self, batch: Batch, inputs: StepInputs) -> Batch | FullPasses:
        """Return what `sum` takes; with XLA, sum the rows of a shorter pass without it."""
        if self.spec.token_features:  # rows of similar length share a pass
            lengths = tf.reduce_sum(row_lengths(batch.features, self.spec.token_features), axis=0)
            order = tf.argsort(lengths, stable=True)
            batch = map_present(lambda tensor: tf.gather(tensor, order), batch)
        if not self.description.is_compiled:
            return batch
        rows, size, known = count_rows(*batch), self.size, present_leaves(batch)[0].shape[0]
        count, rest = rows // size, self._rest(batch, rows, self._zeros(inputs), inputs)
        if known is not None and known % size == 0:
            return FullPasses(rest, batch, tf.constant(0), count)
        # As many passes as expected, or a power of two: in a window of fewer, zeros follow its
        # rows, which no pass reads.
        powers = tf.constant([2**i for i in range(31)])
        capacity = tf.reduce_min(tf.where(powers >= count, powers, powers[-1]))
        if self.expected_rows is not None:
            usual = self.expected_rows // size
            capacity = tf.where(count <= usual, usual, capacity)

        def padded(tensor: tf.Tensor) -> tf.Tensor:
            spare = [[0, (capacity - count) * size], *([0, 0] for _ in tensor.shape[1:])]
            return tf.pad(tensor[: count * size], spare)

        return FullPasses(rest, map_present(padded, batch), tf.constant(0), count)

    def compiled(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Return a function of tensors as one XLA computation; unchanged if XLA is off."""
        if not self.description.is_compiled:
            return function
        compiled = tf.function(function, jit_compile=True, autograph=False)

        def call(*arguments: Tensors) -> Result:
            with phase_scope("compiled"):
                return compiled(*arguments)

        return call

    def sum(self, rows: Batch | FullPasses | GradientSum, inputs: StepInputs) -> GradientSum:
        """Return the sums over one replica's rows of a window: its rows, or those of `split`."""
        if isinstance(rows, GradientSum):
            return rows
        zeros = self._zeros(inputs)

        def loop(passes: FullPasses) -> GradientSum:
            def fixed(tensor: tf.Tensor) -> tf.Tensor:  # so that shapes in the loop are constants
                return tf.ensure_shape(tensor, [self.size, *tensor.shape[1:]])

            def turn(k: tf.Tensor, flat: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
                with phase_scope("forward"):
                    part = map_present(fixed, part_of_rows(passes.batch, k, self.size))
                total = self._add_pass(with_leaves(zeros, flat), k, part, self.size, inputs)
                return k + 1, present_leaves(total)

            _, flat = tf.while_loop(
                lambda k, _: k < passes.end,
                turn,
                (passes.begin, present_leaves(passes.rest)),
                parallel_iterations=self.parallel,
            )
            return with_leaves(zeros, flat)

        if isinstance(rows, FullPasses):
            compiled, half = self.compiled(loop), rows.end // 2
            if self.parallel == 1:
                return compiled(rows)
            passes = rows._replace(rest=zeros)  # of one signature, compiled once
            first, second = compiled(passes._replace(end=half)), passes._replace(begin=half)
            return rows.rest + first + compiled(second)
        number, known = count_rows(*rows), present_leaves(rows)[0].shape[0]

        def several_passes() -> GradientSum:
            rest = self._rest(rows, number, zeros, inputs)
            return loop(FullPasses(rest, rows, tf.constant(0), number // self.size))

        def one_pass() -> GradientSum:
            return self._add_pass(zeros, 0, rows, number, inputs, is_only=True)

        if known is not None and 0 < known <= self.size:
            return one_pass()
        if self.expected_rows is None or self.expected_rows > self.size:
            return several_passes()
        is_one = tf.logical_and(number > 0, number <= self.size)
        return _cond(is_one, one_pass, _one_operation(several_passes), zeros)

    def _add_pass(
        self,
        total: GradientSum,
        index: Index,
        part: Batch,
        rows: tf.Tensor | int,
        inputs: StepInputs,
        *,
        is_only: bool = False,
    ) -> GradientSum:
        """Return the sums of a pass added to a total, which is zero if it is the only pass."""
        at = inputs._replace(random_position=(*inputs.random_position, index))
        with phase_scope("forward"):
            if self.spec.token_features:
                sums = self._trimmed_sums(part, at, total)
            else:
                sums = self.gradients(self.spec, part, at, separate=self.description.separate)
        with phase_scope("backward"):
            if is_only:
                sums = with_tables(sums, total)
            return add_pass(total, sums, rows, self.spec, inputs.measures_noise)

    def _trimmed_sums(self, part: Batch, at: StepInputs, total: GradientSum) -> MicroBatchGradients:
        """Return the sums of a pass whose tokens are cut to the length that they need."""
        names, separate = self.spec.token_features, self.description.separate

        def sums(level: Index) -> MicroBatchGradients:
            return self.gradients(self.spec, _at_level(part, names, level), at, separate=separate)

        level = level_of(part.features, names)
        if not is_compiled_by_xla():
            return sums(level)
        found: list[MicroBatchGradients] = []

        def branch(level: int) -> list[tf.Tensor]:
            # The gradient of an embedding has one row per token: of another shape in each branch.
            found.append(with_tables(sums(level), total))
            return present_leaves(found[-1])

        count = levels(part.features, names)
        flat = tf.switch_case(level, [functools.partial(branch, each) for each in range(count)])
        return with_leaves(found[0], flat)

    def _rest(
        self, batch: Batch, rows: tf.Tensor, zeros: GradientSum, inputs: StepInputs
    ) -> GradientSum:
        """Return the sums of the rows that are left behind the passes of equal size."""
        known, full = present_leaves(batch)[0].shape[0], rows // self.size
        if known is not None and known % self.size == 0:
            return zeros

        def rest() -> GradientSum:
            with phase_scope("forward"):
                part = map_present(lambda tensor: tensor[full * self.size :], batch)
            return self._add_pass(zeros, full, part, rows - full * self.size, inputs)

        # Inlined: TensorFlow would report an error in a separate function, on one of several
        # replicas, as "RecvAsync is cancelled".
        return _cond(rows % self.size > 0, rest, lambda: zeros, zeros)

    def _zeros(self, inputs: StepInputs) -> GradientSum:
        spec, description = self.spec, self.description

        def zeros(present: Sequence[bool], first: list[int]) -> list[tf.Tensor | None]:
            def zero(variable: Variable, has: bool) -> tf.Tensor | None:
                if not has:
                    return None
                wide = variable.dtype == "float64"
                return tf.zeros([*first, *variable.shape], tf.float64 if wide else tf.float32)

            return spec.placement.map(zero, spec.model.trainable_variables, present)

        outputs = [] if description.outputs is None else [description.outputs]
        sums = tf.zeros(outputs, description.accumulator_dtype)
        scalar = tf.zeros([], description.accumulator_dtype)
        has_added = description.has_added_gradient
        return GradientSum(
            numerator=sums,
            denominator=sums,
            rows=scalar,
            gradients=zeros(description.has_gradient, outputs),
            added_loss=None if has_added is None else scalar,
            added_gradients=None if has_added is None else zeros(has_added, []),
            added_rows=None if has_added is None else scalar,
            squares=None if inputs.measures_noise is None else tf.zeros([2], scalar.dtype),
            statistics=tuple(
                tf.zeros([3, *x.moving_mean.shape], tf.float64)
                for x in ghost_layers(spec.model, spec.batch_norm)
            ),
        )


def _at_level(part: Batch, names: Sequence[str], level: Index) -> Batch:
    """Return a micro-batch with the tokens, labels and weights per token of a level's length."""
    longest = {part.features[name].shape[1] for name in names}

    def of_tokens(tensor: tf.Tensor) -> tf.Tensor:
        is_per_token = tensor.shape.rank > 1 and tensor.shape[1] in longest
        return cut(tensor, level) if is_per_token else tensor

    others = map_present(of_tokens, (part.labels, part.sample_weight))
    return Batch(trimmed(part.features, names, level), *others)


def _one_operation(function: Callable[[], GradientSum]) -> Callable[[], GradientSum]:
    """Return a branch as one operation: the executor visits each operation of an inlined one."""
    return tf.function(function, autograph=False, experimental_attributes={"_noinline": True})


def _cond(
    condition: tf.Tensor,
    first: Callable[[], GradientSum],
    second: Callable[[], GradientSum],
    zeros: GradientSum,
) -> GradientSum:
    """Return `first()` or `second()`, which have None where `zeros` has it."""
    branches = (lambda: present_leaves(first()), lambda: present_leaves(second()))
    return with_leaves(zeros, tf.cond(condition, *branches))
