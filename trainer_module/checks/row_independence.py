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
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.batch import translate_tf_errors
from trainer_module.checks.randomness import (
    draws_by_row,
    find_uncontrolled_draw,
    rounding_tolerance,
)
from trainer_module.checks.warn_once import warn_once
from trainer_module.common.layers import replaced_calls
from trainer_module.common.tensors import (
    LossFunction,
    Tensors,
    Variable,
    present_leaves,
    with_leaves,
)
from trainer_module.losses.weighted_loss import WeightedLoss, loss_sums, path_name

MOST_ROWS = 64

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
    """Check a model and a loss with the first rows of a batch, in float64 if the model can.

    Variables and seeds do not change. What cannot be compared is named in a warning.

    Raises:
        ValueError: Rows influence each other.
    """
    reason = ""
    with tf.init_scope():
        rows = _rows(batch, max(2, min(most_rows, MOST_ROWS)))
        if len(present_leaves(rows)[0]) < 2:
            return False
        for dtype in (tf.float64, tf.float32):
            try:
                with translate_tf_errors():
                    probe = _Probe(model, loss_fn, rows, dtype)
                    problem = _find_problem(probe, added_losses)
            except Exception as error:  # of user code; it does not mean that training fails
                if isinstance(error.__cause__, tf.errors.InvalidArgumentError):
                    raise  # of labels or ids out of range, it does
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                continue
            _, sums = probe.whole
            draw = find_uncontrolled_draw(probe.graph)
            if problem and draw is None:
                raise ValueError(problem)
            if not problem and sums[[kind == "denominator" for kind, _ in probe.names]].all():
                return True
            reason = f"random numbers of {draw} differ" if problem else "all weights are 0"
            break
    warn_once(
        f"Model {model.name!r} and its loss were not checked for rows that influence each other "
        f"({reason}). If rows influence each other, the result depends on micro_batch_size.",
        about=model,
    )
    return True


class _Probe:
    """A model and its loss, traced for any number of rows.

    Attributes:
        whole: Outputs and sums for all rows that have a loss.
        count: Number of these rows.
        graph: The traced graph.
        layers: For each output, the name of its layer and the axis of its rows.
        names: For each sum, its kind and the name of its output or layer.
    """

    def __init__(
        self, model: keras.Model, loss_fn: LossFunction, rows: Tensors, dtype: tf.DType
    ) -> None:
        self._model, self._loss_fn, self._structure, self._dtype = model, loss_fn, rows, dtype
        self._rows: list[np.ndarray] = present_leaves(rows)
        self.count = len(self._rows[0])
        self._variables = [v for v in model.variables if "float" in v.dtype]
        values = [tf.cast(v.value, dtype) for v in self._variables]
        self._values = list(map(changed_value, self._variables, values, range(len(values))))
        self.trace()
        (self.whole,) = self.run([0, self.count])
        if not np.isfinite(self.whole[1]).all():
            # The changed values may be invalid, such as below 0, and so may be single rows.
            self._values = values
            single = self.run(range(self.count + 1))
            finite = [i for i, (_, sums) in enumerate(single) if np.isfinite(sums).all()]
            if len(finite) < 2:
                raise ValueError("the loss is not finite")
            self._rows, self.count = [leaf[finite] for leaf in self._rows], len(finite)
            (self.whole,) = self.run([0, self.count])

    def run(self, bounds: Sequence[int]) -> list[tuple[Tensors, np.ndarray]]:
        """Return outputs and sums for the rows from each bound to the next."""
        results = []
        for begin, end in itertools.pairwise(bounds):
            part = [tf.constant(leaf[begin:end]) for leaf in self._rows]
            outputs, sums = self._function(tf.constant([begin, self.count]), *self._values, *part)
            results.append((outputs, sums.numpy()))
        return results

    def trace(self, *, all_layers: bool = False) -> None:
        """Trace the outputs of the model, or of all layers and operations."""
        specs = [tf.TensorSpec([2], tf.int32)]
        specs += [tf.TensorSpec(value.shape, value.dtype) for value in self._values]
        for leaf in map(tf.constant, self._rows):
            specs.append(tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype))
        self._all_layers = all_layers
        function = tf.function(self._compute, specs, autograph=False)
        self._function = function.get_concrete_function()

    def _compute(self, place: tf.Tensor, *tensors: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        self.graph = tf.compat.v1.get_default_graph()
        outputs: list[tf.Tensor] = []
        adding: dict[int, str] = {}
        self.layers, self.names = [], []

        def call(of: Any, function: Callable[..., Tensors], *args: Any, **kwargs: Any) -> Tensors:
            found = function(*args, **kwargs)
            for tensor in tf.nest.flatten(found):
                if getattr(tensor, "graph", None) is self.graph and None in tensor.shape:
                    self.layers.append((of.name, tensor.shape.as_list().index(None)))
                    outputs.append(tensor)
            return found

        def add_loss(of: Any, function: Callable[..., None], loss: Tensors) -> None:
            adding.update((id(one), of.name) for one in tf.nest.flatten(loss))
            function(loss)

        layers = self._model._flatten_layers()
        floats = (x for x in layers if "float" in x.compute_dtype and not x.quantization_mode)
        policies = [(x, keras.DTypePolicy(self._dtype.name)) for x in floats]
        # The operations of a functional model are not layers.
        kept = {id(op): op for x in layers for op in (x, *getattr(x, "operations", ()))}
        traced = kept.values() if self._all_layers else ()
        calls = [(x, functools.partial(call, x, x.call)) for x in traced]
        adds = [(x, functools.partial(add_loss, x, x.add_loss)) for x in layers]
        rows = tensors[len(self._values) :]
        wide = (tf.cast(x, self._dtype) if x.dtype.is_floating else x for x in rows)
        features, labels, weights = with_leaves(self._structure, wide)
        scope = keras.StatelessScope(collect_losses=True, initialize_variables=False)
        # The scope's constructor would cast the values to the dtypes of the variables.
        scope.state_mapping.update(zip(map(id, self._variables), tensors, strict=False))
        with (
            replaced_calls(calls),
            replaced_calls(adds, "add_loss"),
            replaced_calls(policies, "_dtype_policy"),
            draws_by_row(tf.shape(rows[0])[0], *tf.unstack(place)),
            scope,
        ):
            found = self._model(features, training=True)
        if not self._all_layers:
            outputs = found
            self.layers = [(self._model.name, 0)] * len(tf.nest.flatten(found))
        loss_fn, values = self._loss_fn, list(scope.losses)
        self.names += [("added", adding.get(id(loss), self._model.name)) for loss in values]
        losses = [("", loss_fn)]
        if isinstance(loss_fn, WeightedLoss) and len(loss_fn.terms) > 1:
            single = (dataclasses.replace(loss_fn, terms=(term,)) for term in loss_fn.terms)
            losses = [(f" of output {path_name(x.terms[0].path)!r}", x) for x in single]
        for name, loss in losses:
            pair = loss_sums(loss, labels, found, weights)
            for kind, value in zip(("numerator", "denominator"), pair, strict=True):
                values.append(value)
                self.names += [(kind, name)] * (value.shape.num_elements() or 1)
        return outputs, tf.concat([tf.cast(tf.reshape(x, [-1]), tf.float64) for x in values], 0)


def _find_problem(probe: _Probe, added_losses: Literal["mean", "sum"]) -> str | None:
    """Compare all rows with their parts; return an error message or None."""
    bounds = [0]
    while bounds[-1] < probe.count:
        bounds.append(bounds[-1] + (probe.count - bounds[-1] + 1) // 2)
    parts, tolerance = probe.run(bounds), rounding_tolerance(probe.graph)
    where = f"of {probe.count} rows of the first batch"
    layer = _differing_layer(probe, [probe.whole, *parts], tolerance)
    if layer is not None:
        with contextlib.suppress(Exception):  # the name of the model is enough
            probe.trace(all_layers=True)
            results = probe.run([0, probe.count]) + probe.run(bounds)
            layer = _differing_layer(probe, results, tolerance) or layer
        return (
            f"layer {layer!r} is the first whose output for a row depends on the other rows of its "
            f"batch ({where}), so the result would depend on micro_batch_size. Make it process "
            "each row separately, without a mean, softmax, sort or product over axis 0, or compute "
            f"statistics over rows before, for example in Transform. {_WHOLE_BATCH}"
        )
    sums = zip(*(sums for _, sums in (probe.whole, *parts)), strict=True)
    for (kind, name), (whole, *found) in zip(probe.names, sums, strict=True):
        combined = {"mean": found @ np.diff(bounds) / probe.count, "sum": sum(found)}
        margin = tolerance * np.abs([whole, *found]).max()
        fits = [option for option, value in combined.items() if abs(whole - value) <= margin]
        expected = added_losses if kind == "added" else "sum"
        values = f"{whole:.6g} {where}, and {combined[expected]:.6g} over parts of them"
        if expected not in fits and kind == "added":
            means = "pass a mean over the rows to add_loss, and do not mix means and sums"
            advice = f'set added_losses="{fits[0]}".' if fits else f"{means}. {_WHOLE_BATCH}"
            return (
                f"added_losses={added_losses!r}, but what layer {name!r} passes to add_loss is not "
                f"a {added_losses} over rows ({values}): {advice}"
            )
        if expected not in fits:
            return (
                f"the loss function's {kind}{name} does not add up: {values}, so the result would "
                "depend on micro_batch_size. Return sums over rows: no mean, no constant, and no "
                "term that compares rows or does not belong to a row (weight penalties belong in "
                f"a layer's kernel_regularizer). {_WHOLE_BATCH}"
            )
    return None


def _differing_layer(
    probe: _Probe, results: list[tuple[Tensors, np.ndarray]], tolerance: float
) -> str | None:
    """Return the name of the first layer whose output for a row differs, or None."""
    answers = zip(*(tf.nest.flatten(outputs) for outputs, _ in results), strict=True)
    for (name, axis), answer in zip(probe.layers, answers, strict=True):
        whole, *parts = (np.asarray(x) for x in answer)
        if not whole.ndim or whole.dtype == object:
            continue
        if len({(*x.shape[:axis], *x.shape[axis + 1 :]) for x in (whole, *parts)}) > 1:
            return name
        joined, whole = np.concatenate(parts, axis).astype("float64"), whole.astype("float64")
        if joined.shape == whole.shape:  # one value per row
            margin = tolerance * np.abs(whole[np.isfinite(whole)]).max(initial=0)
            if not np.allclose(whole, joined, rtol=0, atol=margin, equal_nan=True):
                return name
    return None


def changed_value(variable: Variable, value: tf.Tensor, seed: int) -> tf.Tensor:
    """Return a trainable value plus noise of a tenth of its root mean square (0.02 if 0)."""
    noise = tf.random.stateless_normal(value.shape, [seed, 0], dtype=value.dtype)
    size = 0.1 * tf.sqrt(tf.reduce_mean(value**2))
    size = tf.where(size > 0, size, 0.02 * tf.ones_like(size))
    return value + noise * size if variable.trainable else value


def _rows(batch: tuple[Tensors, Tensors, Tensors], most_rows: int) -> Tensors:
    """Return rows of a batch in another order, and rows that mix the values of two of them.

    A mixed row shares ids with two rows and differs from both. If all weights are 0, they become 1.
    """
    random = np.random.default_rng(0)
    tensors, most = present_leaves(batch), most_rows - most_rows // 4
    in_graph = any(tf.is_tensor(t) and not hasattr(t, "numpy") for t in tensors)
    arrays = [_draw(random, most, t) if in_graph else np.asarray(t[:most]) for t in tensors]
    order = random.permutation(min(map(len, arrays)))  # the graph rejects tensors of other lengths
    mixed = min(most_rows // 4, len(order) // 2)
    for i, array in enumerate(arrays):
        array = array[order]
        is_first = random.random((mixed, *array.shape[1:2], *[1] * (array.ndim - 2))) < 0.5
        between = np.where(is_first, array[: 2 * mixed : 2], array[1 : 2 * mixed : 2])
        arrays[i] = np.concatenate([array, between])
    features, labels, weights = with_leaves(batch, arrays)
    weighted = [x if x.any() else np.ones_like(x) for x in present_leaves(weights)]
    return features, labels, with_leaves(weights, weighted)


def _draw(random: np.random.Generator, count: int, tensor: tf.Tensor) -> np.ndarray:
    """Return rows for a tensor without values: floats between 0 and 2, integers 0 and 1."""
    numbers = 2 * random.random([count, *(axis or 8 for axis in tensor.shape[1:])])
    numbers = numbers if tensor.dtype.is_floating else numbers.astype(int)
    return numbers.astype(str if tensor.dtype == tf.string else tensor.dtype.as_numpy_dtype)
