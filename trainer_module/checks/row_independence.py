"""Check with the first batch that rows do not influence each other, so that windows are exact.

    outputs(rows)   = outputs(half of the rows), outputs(a quarter), ..., outputs(one row)
    numerator(rows) = Σ numerator(part), and so the denominator
    added(rows)     = Σ added(part), or their mean by rows

in training mode, where a row has the same random numbers in the whole and in its part. The weights
are changed a little, because weights of 0 hide layers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.logits import warn_if_not_probabilities
from trainer_module.checks.randomness import draws_by_row, find_uncontrolled_draw
from trainer_module.checks.warn_once import warn_once
from trainer_module.common.optional_leaves import present_leaves, with_leaves
from trainer_module.common.replaced_calls import replaced_calls
from trainer_module.common.tensors import Tensors
from trainer_module.losses.nested import path_name
from trainer_module.losses.weighted_loss import LossFunction, WeightedLoss, loss_sums

MOST_ROWS = 64

# Relative tolerances by the least precise dtype of the computation. In a batch of another size, a
# row uses other kernels and is rounded differently (on GPUs to the 10 bits of TF32).
_TOLERANCES = {tf.bfloat16: 5e-2, tf.float16: 5e-2, tf.float32: 1e-4, tf.float64: 1e-8}
_TF32_TOLERANCE = 1e-3
# Operations that round no value, or each one alone.
_NO_SUMS = {"Cast", "ConcatV2", "Const", "ExpandDims", "GatherV2", "Identity", "Pack"}
_NO_SUMS |= {"Placeholder", "ReadVariableOp", "Reshape", "Shape", "StridedSlice", "Transpose"}

_WHOLE_BATCH = (
    "A model that needs statistics over the batch (negatives of a contrastive loss, the balance of "
    "experts, ranks) needs the whole batch at once: train it with keras.Model.fit."
)


def check_rows_are_independent(
    model: keras.Model,
    loss_fn: LossFunction,
    batch: tuple[Tensors, Tensors, Tensors],
    *,
    added_losses: Literal["mean", "sum"],
    most_rows: int = MOST_ROWS,
) -> bool:
    """Check a model and a loss with the first rows of a batch; variables and seeds do not change.

    The check computes in float64 if the model can, else in float32. A warning is logged once if
    that fails too, or if the parts cannot have the same random numbers.

    Args:
        model: A built Keras model.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        batch: (features, labels, weights or None), tensors `[rows, ...]`. In a graph, where they
            have no values, rows are drawn.
        added_losses: See `accumulate_gradients`.
        most_rows: Number of rows that the model may process at once; fewer than 2 count as 2.

    Returns:
        Whether there were rows to compare: at least two.

    Raises:
        ValueError: Rows influence each other.
    """
    reason = ""
    with tf.init_scope():
        rows = _rows(batch, max(2, min(most_rows, MOST_ROWS)))
        if _count(rows) < 2:
            return False
        for dtype in (tf.float64, tf.float32):
            try:
                probe = _Probe(model, loss_fn, rows, dtype)
                problem = _find_problem(probe, added_losses)
            except Exception as error:  # of user code; it does not mean that training fails
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                continue
            outputs = tf.nest.pack_sequence_as(probe.structure, probe.whole.outputs)
            warn_if_not_probabilities(model, loss_fn, outputs)
            draw = find_uncontrolled_draw(probe.graph)
            if problem and draw is None:
                raise ValueError(problem)
            if not problem and probe.whole.sums[1].all():
                return True
            reason = "the weights of its rows are 0"
            if problem:
                reason = f"{draw} draws other random numbers for another number of rows"
            break
    warn_once(
        f"Model {model.name!r} and its loss were not checked for rows that influence each other "
        f"({reason}). If rows influence each other, the result depends on micro_batch_size.",
        about=model,
    )
    return True


class _Results(NamedTuple):
    """What a model and its loss compute for some rows.

    Attributes:
        outputs: Outputs of the model or of its layers.
        sums: Numerators and denominators, `[2, losses]`.
        added: The losses that layers pass to `add_loss`.
    """

    outputs: list[np.ndarray]
    sums: np.ndarray
    added: np.ndarray

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.sums).all() and np.isfinite(self.added).all())


class _Probe:
    """A model and its loss, traced for any number of rows.

    Attributes:
        rows: The rows that have a loss, in the structure of a batch.
        whole: The results for all rows.
        graph: The traced graph.
        structure: The structure of the model's outputs.
        layers: For each output, the name of its layer and the axis of its rows.
        losses: The name of each loss.
        adding: The name of the layer of each added loss.
    """

    def __init__(
        self, model: keras.Model, loss_fn: LossFunction, rows: Tensors, dtype: tf.DType
    ) -> None:
        self._model, self._loss_fn, self._dtype, self.rows = model, loss_fn, dtype, rows
        self._variables = [v for v in model.variables if "float" in v.dtype]
        values = [tf.cast(v.value, dtype) for v in self._variables]
        self._values = [
            _changed(value, seed) if variable.trainable else value
            for seed, (variable, value) in enumerate(zip(self._variables, values, strict=True))
        ]
        self.trace()
        (self.whole,) = self.run([0, _count(rows)])
        if not self.whole.is_finite:
            # The changed values may be invalid, such as below 0, and so may be single rows.
            self._values = values
            single = self.run(range(_count(rows) + 1))
            finite = [i for i, results in enumerate(single) if results.is_finite]
            if len(finite) < 2:
                raise ValueError("the loss is not finite")
            self.rows = with_leaves(rows, [leaf[finite] for leaf in present_leaves(rows)])
            (self.whole,) = self.run([0, len(finite)])

    def run(self, bounds: Sequence[int]) -> list[_Results]:
        """Return the results for the rows from each bound to the next."""
        results = []
        for begin, end in itertools.pairwise(bounds):
            place = tf.constant([begin, _count(self.rows)])
            part = [tf.constant(leaf[begin:end]) for leaf in present_leaves(self.rows)]
            outputs, sums, added = self._function(place, *self._values, *part)
            arrays = [output.numpy() for output in outputs]
            results.append(_Results(arrays, sums.numpy(), np.array([x.numpy() for x in added])))
        return results

    def trace(self, *, all_layers: bool = False) -> None:
        """Trace the outputs of the model, or of all layers and operations."""
        layers = self._model._flatten_layers()
        # The operations of a functional model are not layers.
        kept = {id(op): op for x in layers for op in (x, *getattr(x, "operations", ()))}
        self.layers, self.losses, self.adding = [], [], []

        def compute(place: tf.Tensor, *tensors: tf.Tensor) -> tuple[Tensors, ...]:
            graph = tf.compat.v1.get_default_graph()
            outputs: list[tf.Tensor] = []
            names: dict[int, str] = {}

            def keep(operation: keras.Operation, found: Tensors) -> None:
                for tensor in tf.nest.flatten(found):
                    axes = list(getattr(tensor, "shape", ()))
                    if getattr(tensor, "graph", None) is graph and None in axes:
                        self.layers.append((operation.name, axes.index(None)))
                        outputs.append(tensor)

            def call(
                operation: keras.Operation, function: Callable, *args: object, **kwargs: object
            ) -> Tensors:
                found = function(*args, **kwargs)
                keep(operation, found)
                return found

            def add_loss(layer: keras.Layer, function: Callable, loss: Tensors) -> None:
                names.update((id(one), layer.name) for one in tf.nest.flatten(loss))
                function(loss)

            leaves = tensors[len(self._values) :]
            features, *others = with_leaves(self.rows, leaves)
            scope = keras.StatelessScope(collect_losses=True, initialize_variables=False)
            # The scope's constructor would cast the values to the dtypes of the variables.
            scope.state_mapping.update(zip(map(id, self._variables), tensors, strict=False))
            calls = [
                (op, functools.partial(call, op, op.call)) for op in kept.values() if all_layers
            ]
            adds = [(layer, functools.partial(add_loss, layer, layer.add_loss)) for layer in layers]
            with replaced_calls(calls), replaced_calls(adds, "add_loss"):
                with scope, draws_by_row(tf.shape(leaves[0])[0], *tf.unstack(place)):
                    found = self._model(features, training=True)
            if not all_layers:
                outputs, self.structure = tf.nest.flatten(found), found
                self.layers = [(self._model.name, 0)] * len(outputs)
            labels, weights = tf.nest.map_structure(self._widened, others)
            sums = []
            for name, loss in _terms(self._loss_fn):
                pair = tf.stack(loss_sums(loss, labels, found, weights))
                sums.append(tf.reshape(tf.cast(pair, tf.float64), [2, -1]))
                self.losses += [name] * sums[-1].shape[1]
            self.adding = [names.get(id(loss), self._model.name) for loss in scope.losses]
            return outputs, tf.concat(sums, 1), scope.losses

        policies = [
            (layer, keras.DTypePolicy(self._dtype.name))
            for layer in layers
            if "float" in layer.compute_dtype and layer.dtype_policy.quantization_mode is None
        ]
        specs = [tf.TensorSpec([2], tf.int32)]
        specs += [tf.TensorSpec(value.shape, value.dtype) for value in self._values]
        for leaf in map(tf.constant, present_leaves(self.rows)):
            specs.append(tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype))
        with replaced_calls(policies, "_dtype_policy"):
            self._function = tf.function(compute, specs, autograph=False).get_concrete_function()
        self.graph = self._function.graph

    def _widened(self, tensor: tf.Tensor | None) -> tf.Tensor | None:
        is_narrow = tensor is not None and tensor.dtype.is_floating
        return tf.cast(tensor, self._dtype) if is_narrow else tensor


def _find_problem(probe: _Probe, added_losses: Literal["mean", "sum"]) -> str | None:
    """Compare all rows with their parts; return an error message or None."""
    count, bounds = _count(probe.rows), [0]
    while bounds[-1] < count:
        bounds.append(bounds[-1] + (count - bounds[-1] + 1) // 2)
    parts, tolerance = probe.run(bounds), _tolerance(probe.graph)
    where = f"of {count} rows of the first batch"
    layer = _differing_layer(probe, probe.whole, parts, tolerance)
    if layer is not None:
        with contextlib.suppress(Exception):  # the name of the model is enough
            probe.trace(all_layers=True)
            whole, *parts = probe.run([0, count]) + probe.run(bounds)
            layer = _differing_layer(probe, whole, parts, tolerance) or layer
        return (
            f"layer {layer!r} is the first whose output for a row depends on the other rows of its "
            f"batch ({where}, all together and in parts), so the result would depend on "
            "micro_batch_size: make it process each row separately, without a mean, softmax, sort "
            "or product over axis 0. Compute statistics over rows before the training, for example "
            f"in Transform. {_WHOLE_BATCH}"
        )
    shares = np.diff(bounds) / count
    for place, name in enumerate(probe.adding):
        whole, of_parts = probe.whole.added[place], np.array([p.added[place] for p in parts])
        combined = {"mean": of_parts @ shares, "sum": of_parts.sum()}
        margin = tolerance * np.abs([whole, *of_parts]).max()
        fits = [kind for kind, value in combined.items() if abs(whole - value) <= margin]
        if added_losses in fits:
            continue
        advice = "pass a mean over the rows to add_loss, and do not mix means and sums"
        if fits:
            advice = f'set added_losses="{fits[0]}"'
        return (
            f"added_losses={added_losses!r}, but what layer {name!r} passes to add_loss is not a "
            f"{added_losses} over rows: {whole:.6g} {where}, and the {added_losses} over parts of "
            f"them is {combined[added_losses]:.6g}: {advice}. {_WHOLE_BATCH}"
        )
    for kind, sum_name in enumerate(("numerator", "denominator")):
        for place, name in enumerate(probe.losses):
            whole = probe.whole.sums[kind, place]
            of_parts = np.array([part.sums[kind, place] for part in parts])
            if abs(whole - of_parts.sum()) <= tolerance * (abs(whole) + np.abs(of_parts).sum()):
                continue
            return (
                f"the loss function's {sum_name}{name} does not add up: {whole:.6g} {where}, and "
                f"{of_parts.sum():.6g} over parts of them, so the result would depend on "
                "micro_batch_size. Return sums over rows: no mean, no constant, and no term that "
                "compares rows or does not belong to a row (weight penalties belong in a layer's "
                f"kernel_regularizer). {_WHOLE_BATCH}"
            )
    return None


def _differing_layer(
    probe: _Probe, whole: _Results, parts: list[_Results], tolerance: float
) -> str | None:
    """Return the name of the first layer whose output for a row differs, or None."""
    answers = zip(whole.outputs, *(part.outputs for part in parts), strict=True)
    for (name, axis), (all_rows, *found) in zip(probe.layers, answers, strict=True):
        if not all_rows.ndim or all_rows.dtype == object:
            continue
        if len({(*x.shape[:axis], *x.shape[axis + 1 :]) for x in (all_rows, *found)}) > 1:
            return name
        joined = np.concatenate(found, axis).astype("float64")
        if joined.shape != all_rows.shape:
            continue  # not one value per row
        all_rows = all_rows.astype("float64")
        largest = np.abs(all_rows[np.isfinite(all_rows)]).max(initial=0)
        if not np.allclose(all_rows, joined, rtol=0, atol=tolerance * largest, equal_nan=True):
            return name
    return None


def _terms(loss_fn: LossFunction) -> list[tuple[str, LossFunction]]:
    """Return the loss of each output with its name in messages."""
    if not isinstance(loss_fn, WeightedLoss) or len(loss_fn.terms) == 1:
        return [("", loss_fn)]
    return [
        (f" of output {path_name(term.path)!r}", dataclasses.replace(loss_fn, terms=(term,)))
        for term in loss_fn.terms
    ]


def _changed(value: tf.Tensor, seed: int) -> tf.Tensor:
    """Return a value with noise of a tenth of its root mean square, of 0.02 where that is 0."""
    noise = tf.random.stateless_normal(value.shape, [seed, 0], dtype=value.dtype)
    size = 0.1 * tf.sqrt(tf.reduce_mean(value**2))
    return value + noise * tf.where(size > 0, size, tf.constant(0.02, value.dtype))


def _tolerance(graph: tf.Graph) -> float:
    """Return the relative tolerance by the least precise dtype in which the graph adds up."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    used = {a.type for n in nodes if n.op not in _NO_SUMS for a in n.attr.values()}
    narrow = (size for d, size in _TOLERANCES.items() if d.as_datatype_enum in used)
    tolerance = next(narrow, _TOLERANCES[tf.float64])
    is_rounded = tolerance > _TOLERANCES[tf.float64] and tf.config.list_physical_devices("GPU")
    return max(tolerance, _TF32_TOLERANCE) if is_rounded else tolerance


def _count(rows: Tensors) -> int:
    return len(present_leaves(rows)[0])


def _rows(batch: tuple[Tensors, Tensors, Tensors], most_rows: int) -> Tensors:
    """Return rows of a batch in another order, and rows that mix the values of two of them.

    A mixed row shares ids with two rows and differs from both. If all weights are 0, they become 1.
    """
    random = np.random.default_rng(0)
    tensors, mixed = present_leaves(batch), most_rows // 4
    has_values = all(isinstance(t, np.ndarray) or hasattr(t, "numpy") for t in tensors)
    arrays = [
        np.asarray(t[: most_rows - mixed]) if has_values else _drawn(t, most_rows - mixed, random)
        for t in tensors
    ]
    mixed = min(mixed, len(arrays[0]) // 2)
    order = random.permutation(len(arrays[0]))
    for i, array in enumerate(arrays):
        array = array[order]
        is_first = random.random((mixed, *array.shape[1:2])) < 0.5
        is_first = is_first.reshape(is_first.shape + (1,) * (array.ndim - is_first.ndim))
        between = np.where(is_first, array[: 2 * mixed : 2], array[1 : 2 * mixed : 2])
        arrays[i] = np.concatenate([array, between])
    features, labels, weights = with_leaves(batch, arrays)
    ones = [x if x.any() else np.ones_like(x) for x in present_leaves(weights)]
    return features, labels, with_leaves(weights, ones)


def _drawn(tensor: tf.Tensor, count: int, random: np.random.Generator) -> np.ndarray:
    """Return rows for a tensor without values: floats between 0 and 1, integers 0 and 1."""
    shape = [count, *(axis or 8 for axis in tensor.shape[1:])]
    if tensor.dtype.is_floating:
        return random.random(shape).astype(tensor.dtype.as_numpy_dtype)
    numbers = random.integers(0, 2, shape)
    return numbers.astype(str if tensor.dtype == tf.string else tensor.dtype.as_numpy_dtype)
