"""An exported model with the signature `input_gradients`: features of rows, the path integral."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainer_module.tfx.input_gradients import BASELINE, SHARE, SIGNATURE, argument_name

TRANSFORM = "transform_features"

Tensors = dict[str, tf.Tensor]


class Attributed(NamedTuple):
    """Attributions of rows.

    Attributes:
        columns: Names of the columns.
        attributions: float64 `[rows, columns]`.
        prediction: float64 `[rows]`, of the rows.
        baseline_prediction: float64 `[rows]`, the mean over the baselines.
        classes: int64 `[rows]`, the explained class of each row; None if there is one output.
    """

    columns: tuple[str, ...]
    attributions: np.ndarray
    prediction: np.ndarray
    baseline_prediction: np.ndarray
    classes: np.ndarray | None

    @property
    def completeness_error(self) -> np.ndarray:
        """Change of the prediction minus the sum of a row's attributions, `[rows]`."""
        change = self.prediction - self.baseline_prediction
        return change - self.attributions.sum(axis=1)


class ExplainedModel:
    """A SavedModel with the signature `input_gradients`."""

    def __init__(self, path: str, *, transformed: bool):
        """Load it.

        Args:
            path: Folder of the SavedModel.
            transformed: Whether its rows will be transformed ones.

        Raises:
            ValueError: A signature is missing.
        """
        loaded: Any = tf.saved_model.load(path)
        self._keep = loaded  # its variables live as long as it does
        self._signatures = loaded.signatures
        for name, fix in (
            (
                SIGNATURE,
                "train it with `explain:` (in a graph of yours, create_trainer(..., "
                "input_gradients=True)), or export the result of "
                "trainer_module.input_gradients_signature under this name",
            ),
            *([] if transformed else [(TRANSFORM, _NO_TRANSFORM)]),
        ):
            if name not in self._signatures:
                raise ValueError(
                    f"InputGradients: the model under {path} has no signature {name!r}, only "
                    f"{', '.join(sorted(self._signatures))}: {fix}."
                )
        self._path = path
        self._transformed = transformed
        self._gradients = self._signatures[SIGNATURE]
        arguments: Mapping[str, tf.TensorSpec] = self._gradients.structured_input_signature[1]
        self._specs = {
            name: spec
            for name, spec in arguments.items()
            if name != SHARE and BASELINE + name in arguments
        }

    def features(self, records: Sequence[bytes], what: str) -> Tensors:
        """Return the transformed features of rows, by argument.

        Args:
            records: Serialized tf.Examples.
            what: Split and place of the rows, for messages.

        Raises:
            ValueError: The rows do not fit the model.
        """
        try:
            found = self._parsed(records) if self._transformed else self._transform(records)
            return {
                name: tf.ensure_shape(tf.cast(found[name], spec.dtype), spec.shape)
                for name, spec in self._specs.items()
            }
        except (tf.errors.InvalidArgumentError, KeyError, ValueError) as error:
            kind = "transformed" if self._transformed else "raw"
            raise ValueError(
                f"InputGradients: {what} does not fit the model under {self._path}, which takes "
                f"{', '.join(sorted(self._specs))}: {_reason(error)} The rows are read as "
                f"{kind} examples (transformed={self._transformed}): give the examples that the "
                "model was trained with, or the other kind."
            ) from None

    def _transform(self, records: Sequence[bytes]) -> Tensors:
        found = self._signatures[TRANSFORM](examples=tf.constant(list(records)))
        return {argument_name(name): tensor for name, tensor in found.items()}

    def _parsed(self, records: Sequence[bytes]) -> Tensors:
        present = tf.train.Example.FromString(records[0]).features.feature
        names = {argument_name(name): name for name in present}
        specs = {}
        for argument, spec in self._specs.items():
            read = tf.float32 if spec.dtype.is_floating else spec.dtype
            read = tf.int64 if spec.dtype.is_integer else read
            name = names.get(argument, argument)
            specs[name] = tf.io.FixedLenFeature(spec.shape[1:], read)
        found = tf.io.parse_example(list(records), specs)
        return {argument_name(name): tensor for name, tensor in found.items()}

    def zeros(self) -> Tensors:
        """Return a row of zeros."""
        return {
            name: tf.zeros([1, *spec.shape[1:]], spec.dtype) for name, spec in self._specs.items()
        }

    def attribute(
        self, features: Tensors, baselines: Tensors, *, steps: int, batch_rows: int
    ) -> Attributed:
        """Return integrated gradients of rows, the mean over the baselines.

        Args:
            features: Tensors `[rows, ...]`.
            baselines: Tensors `[baselines, ...]`.
            steps: Points of the Gauss-Legendre quadrature.
            batch_rows: Rows at a time.
        """
        rows = len(next(iter(features.values())))
        parts = []
        for start in range(0, rows, batch_rows):
            batch = {name: t[start : start + batch_rows] for name, t in features.items()}
            parts.append(self._attribute_batch(batch, baselines, steps))
        merge: Callable[[str], np.ndarray] = lambda key: np.concatenate(  # noqa: E731
            [getattr(part, key) for part in parts]
        )
        return Attributed(
            columns=parts[0].columns,
            attributions=merge("attributions"),
            prediction=merge("prediction"),
            baseline_prediction=merge("baseline_prediction"),
            classes=None if parts[0].classes is None else merge("classes"),
        )

    def _attribute_batch(self, batch: Tensors, baselines: Tensors, steps: int) -> Attributed:
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        count = len(next(iter(baselines.values())))
        total, start = 0.0, 0.0
        end: dict[str, np.ndarray] = {}
        for number in range(count):
            baseline = {BASELINE + k: t[number : number + 1] for k, t in baselines.items()}

            def at(share: float, baseline: Tensors = baseline) -> dict[str, np.ndarray]:
                point = tf.constant(share, tf.float32)
                found = self._gradients(**batch, **baseline, **{SHARE: point})
                return {name: tensor.numpy() for name, tensor in found.items()}

            start = start + at(0.0)["prediction"].astype(np.float64)
            for node, weight in zip(nodes, weights, strict=True):
                found = at((node + 1) / 2)["attributions"].astype(np.float64)
                total = total + found * (weight / 2)
            end = at(1.0)
        return Attributed(
            columns=tuple(name.decode() for name in end["columns"]),
            attributions=np.asarray(total) / count,
            prediction=end["prediction"].astype(np.float64),
            baseline_prediction=np.asarray(start) / count,
            classes=end.get("class"),
        )


@functools.lru_cache(maxsize=1)
def load_model(path: str, *, transformed: bool) -> ExplainedModel:
    """Return the model of this process; see `ExplainedModel`."""
    return ExplainedModel(path, transformed=transformed)


_NO_TRANSFORM = (
    "it turns raw examples into the model's features. Give transformed examples with "
    "transformed=True, or export it"
)


def _reason(error: Exception) -> str:
    """Return the line of an error that says what is wrong; TensorFlow puts its graph around it."""
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip().removeprefix("Name: <unknown>, ") for line in text.splitlines()]
    around = ("Graph execution error", "Detected at node", "<stack traces", "File ", "[[")
    reasons = [line for line in lines if line and not line.startswith(around)]
    return f"{reasons[0].rstrip('.')}." if reasons else ""
