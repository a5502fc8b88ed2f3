"""What the micro-batches of a window share: model, rows, inputs, devices and passes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import keras
import tensorflow as tf

from trainer_module.common.tensors import (
    AddedLosses,
    LossFunction,
    Tensors,
    VariableValues,
    map_present,
)
from trainer_module.devices.replicas import DeviceKind, Share, gpu_memory
from trainer_module.options.step_options import BatchNorm
from trainer_module.window.trace import is_compiled_by_xla

# An int, or an integer scalar tensor.
Index: TypeAlias = tf.Tensor | int


class Batch(NamedTuple):
    """Rows of a batch or of a micro-batch.

    Attributes:
        features: Tensor or structure of tensors `[rows, ...]`.
        labels: Tensor or structure of tensors `[rows, ...]`, as the loss expects them.
        sample_weight: Tensor or structure of tensors `[rows]`, or None.
    """

    features: Tensors
    labels: Tensors
    sample_weight: Tensors = None


def unpack_batch(batch: Tensors) -> Batch:
    """Return the parts of a batch; sample_weight is None for a batch of two parts.

    Raises:
        ValueError: The batch is not (features, labels) or (features, labels, sample_weight).
    """
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise ValueError(
            f"a batch is (features, labels) or (features, labels, sample_weight), got "
            f"{type(batch).__name__}"
            + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
            + "."
        )
    features, labels, *rest = batch
    return Batch(features, labels, rest[0] if rest else None)


def unpack_share(element: Tensors) -> Batch | Share:
    """Return an element of a dataset as a batch or a share of one."""
    if isinstance(element, Share):
        return Share(unpack_batch(element.batch), element.rows)
    return unpack_batch(element)


@dataclasses.dataclass(frozen=True)
class WindowSpec:
    """The model, the loss and the micro-batch size; the same for all windows of a training run.

    Attributes:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        added_losses: Whether what layers pass to `add_loss` is a mean or a sum over rows.
        micro_batch_size: Number of rows of one micro-batch.
        jit_compile: Whether to compile with XLA all micro-batches but a shorter last one; "auto":
            where it pays (see `describe`).
        expected_rows: Number of rows of most batches on one replica, or None.
        device_kind: Kind of the replicas' devices.
        batch_norm: What BatchNormalization computes, see `batch_norm.py`; None: there is none.
        token_features: Names of features `[rows, length]` of token ids, padded with 0 to a fixed
            length. Each micro-batch is cut to the length that its rows need.
    """

    model: keras.Model
    loss_fn: LossFunction
    added_losses: AddedLosses = "mean"
    micro_batch_size: int = 1
    jit_compile: bool | Literal["auto"] = False
    expected_rows: int | None = None
    device_kind: DeviceKind = "CPU"
    batch_norm: BatchNorm | None = None
    token_features: tuple[str, ...] = ()

    @property
    def placement(self) -> Placement:
        """The placement of the model's sums."""
        return placement_of(self.model)


class StepInputs(NamedTuple):
    """The inputs of a window that change from step to step.

    Attributes:
        random_position: Integers that identify the position in the run, such as the step number.
            Dropout masks are a function of the model's seeds and these integers.
        loss_scale: Factor of all gradients, for float16; None: 1.
        values: See `VariableValues`; empty: read the variables.
        measures_noise: Whether to sum the squares of this window's passes, scalar bool; None: no
            window's.
    """

    random_position: Sequence[Index] = ()
    loss_scale: tf.Tensor | None = None
    values: VariableValues = ()
    measures_noise: tf.Tensor | None = None


Result = TypeVar("Result")


class Placement:
    """The placement of a model on one device: TensorFlow chooses it.

    A model with variables on several devices has an instance of a subclass as its attribute
    `placement`.

    Attributes:
        concurrent_passes: Number of passes of a window that run in parallel, each with one
            micro-batch; 1: `plan_passes` decides.
    """

    concurrent_passes: int = 1

    def map(self, function: Callable[..., Result], *lists: Sequence[object]) -> list[Result]:
        """Return the function's results, one per trainable variable."""
        return [function(*parts) for parts in zip(*lists, strict=True)]

    def prepare_optimizer(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Make a built optimizer compute each update on the variable's device."""


def placement_of(model: keras.Model) -> Placement:
    """Return the model's `placement`, or the default placement if it has none."""
    found = getattr(model, "placement", None)
    return found if isinstance(found, Placement) else Placement()


class _Limits(NamedTuple):
    """Limits of a device kind for processing more than one micro-batch at a time.

    Attributes:
        bytes_at_once: Largest total size of all running passes, in bytes. A single micro-batch may
            be larger.
        micro_batches: Largest number of micro-batches per pass; a power of two.
        parallel_passes: Largest number of passes that run in parallel.
    """

    bytes_at_once: int
    micro_batches: int
    parallel_passes: int


# Measured gain: compare with `ours, one by one` of benchmarks/step_time.py.
LIMITS: dict[DeviceKind, _Limits] = {
    "CPU": _Limits(128 * 2**20, micro_batches=4, parallel_passes=2),
    # A GPU runs one kernel after another, so parallel passes gain little. The bytes are the least:
    # 1/64 of its memory may be more.
    "GPU": _Limits(256 * 2**20, micro_batches=32, parallel_passes=1),
}


class _Passes(NamedTuple):
    """How many micro-batches one pass takes, and how many passes run in parallel.

    The micro-batch size bounds memory. If micro-batches need little memory, processing them one by
    one saves nothing and leaves cores idle.

    Attributes:
        micro_batches: Number of micro-batches that one pass takes; a power of two. The window's
            sums are the same up to rounding.
        parallel_passes: Number of passes that run in parallel; their gradients do not depend on
            each other. The sums are bit-identical, because they are added in the order of the
            passes.
    """

    micro_batches: int
    parallel_passes: int


def plan_passes(
    size: float,
    *,
    kind: DeviceKind = "CPU",
    merge_micro_batches: bool = True,
    has_loops: bool = False,
    concurrent_passes: int = 1,
) -> _Passes:
    """Return the passes for micro-batches of a given size.

    Args:
        size: Upper bound of the memory of one micro-batch, in bytes (see `Description`).
        kind: Kind of the replica's device.
        merge_micro_batches: Whether one pass may take several micro-batches.
        has_loops: Whether the model has loops. Iterations of a loop wait for each other, so that
            few rows leave cores idle. One pass then takes up to eight times as many micro-batches,
            within the memory limit.
        concurrent_passes: Of the placement. If above 1, this many passes of one micro-batch each
            run in parallel, regardless of their size.
    """
    if concurrent_passes > 1:
        return _Passes(1, concurrent_passes)
    limits = LIMITS[kind]
    if kind == "GPU":
        room = max(limits.bytes_at_once, gpu_memory() // 64)
        limits = limits._replace(bytes_at_once=room)
    if has_loops:
        limits = limits._replace(micro_batches=8 * limits.micro_batches, parallel_passes=1)
    if size <= 0:
        return _Passes(1, 1)
    room = max(1, min(limits.bytes_at_once // size, limits.parallel_passes * limits.micro_batches))
    parallel = int(min(room, limits.parallel_passes))
    most = min(room // parallel, limits.micro_batches) if merge_micro_batches else 1
    return _Passes(2 ** int(math.log2(most)), parallel)


def part_of_rows(structure: Tensors, index: Index, size: int) -> Tensors:
    """Return part `index` of the rows, of which each has `size`; in XLA, that divides their number.

    From a start that is not a constant, `tf.slice` in XLA copies its input to twice the size in
    each dimension.
    """
    compiled, start = is_compiled_by_xla(), index * size

    def part(tensor: tf.Tensor) -> tf.Tensor:
        if not compiled:
            return tensor[start : start + size]
        shape = tf.shape(tensor)
        parts = tf.reshape(tensor, tf.concat([[shape[0] // size, size], shape[1:]], 0))
        return tf.gather(parts, index)

    return map_present(part, structure)


def even_size(rows: int, most: int) -> int:
    """Return the size of equal passes over so many rows, of at most `most` rows each.

    If no size from half of `most` divides the rows, a shorter pass is left.
    """
    if rows <= most:
        return rows
    return next((size for size in range(most, most // 2, -1) if rows % size == 0), most)
