"""Find the output and the object of each metric that is given as in `compile` of Keras."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from shared_core.nearest import nearest
from trainer_module.common.keras_names import check_keras_name
from trainer_module.common.tensors import Tensors
from trainer_module.losses.weighted_loss import Path, path_name

# A metric, its name or a function; lists of these, and dicts or lists nested like the outputs.
Metrics: TypeAlias = Any


class _OutputMetric(NamedTuple):
    """A metric, and the path of the output that it measures; () for the only output."""

    path: Path
    metric: keras.metrics.Metric


def metrics_by_name(
    metrics: Metrics, outputs: Sequence[Path], output_names: Sequence[str] = ()
) -> dict[str, _OutputMetric]:
    """Return the metrics by the name of their result; call it in the strategy's scope.

    Args:
        metrics: Names, metrics and functions `(labels, outputs) -> values`, in lists, nested like
            the outputs.
        outputs: Paths of the outputs that have a loss; [()] for a single one, empty if unknown.
        output_names: Names that Keras has for the outputs of a list.

    Raises:
        ValueError: Something else is among the metrics, there is no such name or output, or two
            results have the same name.
    """

    def walk(given: Metrics, path: Path) -> Iterator[_OutputMetric]:
        below = [output for output in outputs if output[: len(path)] == path != output]
        if isinstance(given, Mapping):
            for key, part in given.items():
                # The loss of a single output has no name for it.
                alone = not path and path in outputs and key in output_names
                yield from walk(part, path if alone else (*path, output_key(path, key, below)))
        elif given is not None and not isinstance(given, (list, tuple)):
            yield from walk([given], path)
        elif given and _is_per_output(given, below, is_output=path in outputs):
            for place, part in enumerate(given):
                yield from walk(part, path if path in outputs else (*path, place))
        else:
            yield from (_OutputMetric(path, _as_metric(each)) for each in given or ())

    def output_key(path: Path, key: str | int, below: list[Path]) -> str | int:
        keys = [output[len(path)] for output in below]
        if key in output_names and keys and all(isinstance(each, int) for each in keys):
            key = list(output_names).index(str(key))
        if key not in keys and (keys or (path and path in outputs)):
            suggestion = nearest(str(key), map(str, keys or [path_name(path)]))
            raise ValueError(f"metrics: there is no loss of an output {key!r}; {suggestion}")
        return key

    found = list(walk(metrics, ()))
    names = [f"{path_name(path)}_{metric.name}" if path else metric.name for path, metric in found]
    if len({"loss", *names}) <= len(names):
        raise ValueError(f"metrics: the names loss, {', '.join(names)} repeat; give each its own.")
    return dict(zip(names, found, strict=True))


def _is_per_output(given: Sequence[Any], below: list[Path], *, is_output: bool) -> bool:
    """Return whether a list has an entry for each output, and not the metrics of one."""
    nested = any(isinstance(each, (list, tuple, Mapping)) for each in given)
    if len(below) < 2:
        if nested and len(given) > 1 and is_output:
            raise ValueError(f"metrics: the lists {[*given]!r} are of one output: give one list.")
        return nested
    if not nested and all(map(_measures_all, given)):
        return False
    keys = {output[0] for output in below}
    if not all(isinstance(key, int) for key in keys):
        raise ValueError(
            f"metrics={[*given]!r} for the outputs {', '.join(map(path_name, below))}: give a dict "
            "from the output to its metrics."
        )
    if len(given) != len(keys):
        raise ValueError(
            f"metrics has {len(given)} entries for {len(keys)} outputs: give one for each, which "
            "may be a list or None."
        )
    return True


def _measures_all(metric: object) -> bool:
    """Return whether it is a metric of the user's own, which may take all outputs together."""
    is_own = not type(metric).__module__.startswith("keras.")
    return isinstance(metric, keras.metrics.Metric) and is_own


def _as_metric(given: Any) -> keras.metrics.Metric:
    """Return the metric of a name, class or function, named as in Keras."""
    if isinstance(given, keras.metrics.Metric):
        return given
    name = given if isinstance(given, str) else None
    if name and name.lower() in ("accuracy", "acc"):
        return keras.metrics.MeanMetricWrapper(_accuracy, name=name)
    if name:
        check_keras_name("metric", name, field="metrics")
    # Losses reduce over the rows; metrics of tf.keras belong to another library.
    is_class = inspect.isclass(given)
    is_other = isinstance(given, keras.losses.Loss) or hasattr(given, "update_state")
    is_metric = is_class and issubclass(given, keras.metrics.Metric)
    if not (name or is_metric or (callable(given) and not is_class and not is_other)):
        raise ValueError(
            f"metrics: {given!r} is a {type(given).__module__}.{type(given).__name__}: give the "
            "name of a Keras metric, a keras.metrics.Metric or a function (labels, outputs) -> "
            "values, in lists, for several outputs in a dict or list of them."
        )
    try:
        found = keras.metrics.get(given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"metrics={given!r} cannot be made by its name ({error}): give the object, such as "
            "keras.metrics.TopKCategoricalAccuracy(k=3)."
        ) from error
    if not isinstance(found, keras.metrics.Metric):
        name = name or getattr(found, "__name__", type(found).__name__)
        return keras.metrics.MeanMetricWrapper(found, name=name)
    found.name = name or found.name
    return found


def _accuracy(labels: Tensors, outputs: Tensors) -> Tensors:
    """Return the accuracy that fits the shapes, as Keras chooses it for "accuracy"."""
    if outputs.shape[-1] == 1:
        return keras.metrics.binary_accuracy(labels, outputs)
    if len(labels.shape) < len(outputs.shape) or labels.shape[-1] == 1:
        return keras.metrics.sparse_categorical_accuracy(labels, outputs)
    return keras.metrics.categorical_accuracy(labels, outputs)
