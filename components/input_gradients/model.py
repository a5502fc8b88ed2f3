"""An exported model with the signature `input_gradients`: attributions of rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainer_module.gradients.inputs import quadrature
from trainer_module.tfx.input_gradients import SHARES, SIGNATURE, WEIGHTS, argument_name

_TRANSFORM = "transform_features"
_BATCH_ROWS = 256  # of one forward and backward pass: they bound the memory


class Attributed(NamedTuple):
    """Attributions of rows.

    Attributes:
        columns: Names of the columns.
        attributions: float64 `[rows, columns]`.
        prediction: float64 `[rows]`, of the rows.
        baseline_prediction: float64 `[rows]`, of the baseline.
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
    """A SavedModel with the signatures `input_gradients` and `transform_features`."""

    def __init__(self, path: str):
        """Load the model of a folder.

        Raises:
            ValueError: A signature is missing.
        """
        loaded: Any = tf.saved_model.load(path)
        self._keep = loaded  # its variables live as long as it does
        self._path, self._signatures = path, loaded.signatures
        for name, fix in (
            (
                SIGNATURE,
                "train it with `explain:` (in a graph of yours, create_trainer(..., "
                "input_gradients=True)), or export the result of "
                "trainer_module.input_gradients_signature under this name",
            ),
            (_TRANSFORM, "export it; it turns raw examples into the model's features"),
        ):
            if name not in self._signatures:
                raise ValueError(
                    f"InputGradients: the model under {path} has no signature {name!r}, only "
                    f"{', '.join(sorted(self._signatures))}: {fix}."
                )

    def attribute(self, records: Sequence[bytes], what: str, *, steps: int) -> Attributed:
        """Return integrated gradients of rows.

        Args:
            records: Serialized tf.Examples.
            what: Split and place of the rows, for messages.
            steps: Points of the Gauss-Legendre quadrature.

        Raises:
            ValueError: The rows do not fit the model, or an attribution is not finite.
        """
        signature = self._signatures[SIGNATURE]
        path = dict(zip((SHARES, WEIGHTS), map(tf.constant, quadrature(steps)), strict=True))
        arguments = signature.structured_input_signature[1]
        specs = {name: spec for name, spec in arguments.items() if name not in path}
        parts: list[dict[str, np.ndarray]] = []
        for start in range(0, len(records), _BATCH_ROWS):
            features = self._features(records[start : start + _BATCH_ROWS], specs, what)
            found = signature(**features, **path)
            parts.append({name: tensor.numpy() for name, tensor in found.items()})
        columns = tuple(name.decode() for name in parts[0]["columns"])
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        attributed = Attributed(
            columns,
            *(
                whole[name].astype(np.float64)
                for name in ("attributions", "prediction", "baseline_prediction")
            ),
            whole.get("class"),
        )
        # The error is the sum of all numbers of a row.
        wrong = ~np.isfinite(attributed.completeness_error)
        if wrong.any():
            raise ValueError(
                f"InputGradients: {int(wrong.sum())} of {len(wrong)} rows of {what} have "
                f"attributions that are not finite, for the model under {self._path}: look for NaN "
                "and infinity in its features and in its weights."
            )
        return attributed

    def _features(
        self, records: Sequence[bytes], specs: dict[str, tf.TensorSpec], what: str
    ) -> dict[str, tf.Tensor]:
        try:
            found = self._signatures[_TRANSFORM](examples=tf.constant(list(records)))
            by_argument = {argument_name(name): tensor for name, tensor in found.items()}
            return {
                name: tf.ensure_shape(tf.cast(by_argument[name], spec.dtype), spec.shape)
                for name, spec in specs.items()
            }
        except (tf.errors.InvalidArgumentError, KeyError, ValueError) as error:
            raise ValueError(
                f"InputGradients: {what} does not fit the model under {self._path}, which takes "
                f"{', '.join(sorted(specs))}: {_reason(error)} Give the raw examples that the "
                "model was trained with."
            ) from None


@functools.lru_cache(maxsize=1)
def load_model(path: str) -> ExplainedModel:
    """Return the model of this process; see `ExplainedModel`."""
    return ExplainedModel(path)


def _reason(error: Exception) -> str:
    """Return the line of an error that says what is wrong; TensorFlow puts its graph around it."""
    text = getattr(error, "message", None) or str(error)
    lines = [line.strip().removeprefix("Name: <unknown>, ") for line in text.splitlines()]
    around = ("Graph execution error", "Detected at node", "<stack traces", "File ", "[[")
    reasons = [line for line in lines if line and not line.startswith(around)]
    return f"{reasons[0].rstrip('.')}." if reasons else ""
