"""A pushed model as a function of columns: raw values in, named predictions out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipeline.common.errors import ConfigError, first_line
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.common.nearest_file import did_you_mean
from pipeline.common.object_stores import register_file_systems
from pipeline.run.raw_rows import ModelRows, Wrong, model_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Kind


class _UnseenCategories(Counter[str]):
    """Number of rows with an unseen category, by column."""

    def describe(self) -> str:
        """Return one line; "" if every category is known."""
        counts = [(name, n) for name, n in self.most_common() if n]
        found = [f"{name} ({n:,} {'row' if n == 1 else 'rows'})" for name, n in counts]
        note = "Note: categories that are not in the training data: "
        return note + "; ".join(found) if found else ""


@dataclass(frozen=True)
class _InputChecks:
    """The positions in the transformed features that show unknown values.

    Attributes:
        categories: For each, `column`, `output`, `position`, `ids`.
        dates: For each, `column`, `output`, `word`, `bit`.
    """

    categories: tuple[Mapping[str, JsonValue], ...] = ()
    dates: tuple[Mapping[str, JsonValue], ...] = ()

    @classmethod
    def read(cls, version: Path) -> _InputChecks:
        """Read the checks of a SavedModel; empty if it was exported without them."""
        file = version / "assets.extra/input_checks.json"
        if not file.is_file():
            return cls()
        values = json.loads(file.read_text(encoding="utf-8"))
        return cls(tuple(values["categories"]), tuple(values["dates"]))

    def __bool__(self) -> bool:
        """Return whether there are any checks."""
        return bool(self.categories or self.dates)

    def unseen(self, transformed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return by column whether each row has a category that was not seen in training."""
        found: dict[str, np.ndarray] = {}
        for check in self.categories:
            values = transformed[check["output"]]
            ids = values.reshape(len(values), -1)[:, check["position"]]
            low, high = check["ids"]
            is_unseen = (ids < 0) | ((ids >= low) & (ids <= high))
            column = check["column"]
            found[column] = found[column] | is_unseen if column in found else is_unseen
        return found

    def missing_dates(self, transformed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return by column whether the model treats each row's date as missing."""
        return {
            check["column"]: (transformed[check["output"]][:, check["word"]] >> check["bit"]) & 1
            == 1
            for check in self.dates
        }


Predictions: TypeAlias = dict[str, np.ndarray]
"""Column of the output -> `[rows]`: numbers or texts."""

KINDS: dict[str, Kind] = {"string": "string", "float32": "float", "int64": "int"}
_TRANSFORM = "transform_features"
_OF_A_CLASSIFIER = {"outputs", "prediction", "classes", "probabilities"}


def find_version(place: str) -> str:
    """Return the SavedModel at a place, or the highest-numbered version below it.

    Raises:
        ConfigError: There is no SavedModel, or the place cannot be read.
    """
    from tensorflow.io import gfile

    register_file_systems(place)
    place = place.rstrip("/")
    try:
        if gfile.exists(f"{place}/saved_model.pb"):
            return place
        names = [name.rstrip("/") for name in gfile.listdir(place)] if gfile.isdir(place) else []
        versions = [n for n in names if n.isdigit() and gfile.exists(f"{place}/{n}/saved_model.pb")]
    except Exception as error:  # no credentials, no such bucket, no network
        raise ConfigError(
            f"--model={place}: cannot be read ({first_line(error)}). Check the "
            "credentials of this machine, or name a copy on it."
        ) from None
    if not versions:
        raise ConfigError(
            f"--model={place}: no SavedModel there, and none in a numbered folder below. "
            + ("" if "://" in place or gfile.exists(place) else did_you_mean(Path(place)))
            + "`python -m pipeline run` prints where it pushed the model."
        )
    return f"{place}/{max(versions, key=int)}"


class Predictor:
    """A loaded SavedModel, the types of its raw columns, and the meaning of its outputs."""

    def __init__(self, version: Path):
        """Load a SavedModel from its folder.

        Raises:
            ConfigError: It cannot be loaded, or was not pushed by this pipeline.
        """
        import tensorflow as tf

        self.path = version
        try:
            self._loaded: Any = tf.saved_model.load(str(version))
        except Exception as error:  # from protobuf, TensorFlow or the file system
            raise ConfigError(
                f"--model={version}: damaged or incomplete ({type(error).__name__}: "
                f"{first_line(error)}). Push it again, or name another version."
            ) from None
        signatures = self._loaded.signatures
        listed = version / "assets.extra" / "raw_columns.json"
        if "serving_default" not in signatures or not listed.is_file():
            raise ConfigError(
                f"--model={version}: has no serving_default signature or no {listed.name} "
                "(the raw columns that it takes); use a model that this pipeline pushed."
            )
        columns = json.loads(listed.read_text(encoding="utf-8"))["columns"]
        self.kinds: dict[str, Kind] = {c["name"]: KINDS[c["dtype"]] for c in columns}
        self._checks = _InputChecks.read(version) if _TRANSFORM in signatures else _InputChecks()
        self.unseen = _UnseenCategories()
        named = version / "assets.extra" / "label.json"
        self._label: JsonObject = (
            json.loads(named.read_text(encoding="utf-8")) if named.is_file() else {}
        )

    def __call__(self, batch: pa.RecordBatch, decimal: str) -> tuple[Predictions, list[Wrong]]:
        """Return predictions of the rows that the model can take, and errors for the others.

        The batch has every column of `kinds`, as texts or values. Predictions are column ->
        `[rows]`, without the wrong rows; of each of these, its first wrong value is returned.
        """
        import tensorflow as tf

        rows = model_rows(batch, self.kinds, decimal)
        try:
            return self._of_rows(batch, rows)
        except tf.errors.InvalidArgumentError as error:
            raise ConfigError(
                f"--data: the model does not take these rows ({first_line(error)}). "
                "A column may hold several values in a row where the model takes one."
            ) from None

    def _of_rows(self, batch: pa.RecordBatch, rows: ModelRows) -> tuple[Predictions, list[Wrong]]:
        if not len(rows.rows):
            return {}, rows.wrong
        examples = rows.examples()
        wrong, keep = rows.wrong, np.ones(len(examples), bool)
        if self._checks:
            transformed = self._call(_TRANSFORM, examples)
            unread = self._unread_dates(batch, rows.rows, transformed)
            keep = ~np.isin(rows.rows, [each.row for each in unread])
            wrong = sorted([*wrong, *unread])
            for column, is_unseen in self._checks.unseen(transformed).items():
                self.unseen[column] += int(np.count_nonzero(is_unseen & keep))
        if not keep.any():
            return {}, wrong
        known = list(compress(examples, keep))
        found = {
            name: value[:, 0] if value.ndim == 2 and value.shape[1] == 1 else value
            for name, value in self.outputs(known).items()
        }
        return self._named(found), wrong

    def _unread_dates(
        self, batch: pa.RecordBatch, rows: np.ndarray, transformed: Mapping[str, np.ndarray]
    ) -> list[Wrong]:
        """Return, for each row, the first date that is present but that the model cannot read."""
        found: dict[int, Wrong] = {}
        for column, is_missing in self._checks.missing_dates(transformed).items():
            place = batch.schema.get_field_index(column)
            if place < 0:
                continue  # a derived column
            for row in rows[is_missing].tolist():
                value = batch[place][row].as_py()
                text = value.decode(errors="replace") if isinstance(value, bytes) else value
                if text is not None and str(text).strip() and text != [] and text == text:
                    found.setdefault(row, Wrong(row, column, str(text), "a date"))
        return list(found.values())

    def outputs(self, examples: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Return the outputs of `serving_default` for serialized tf.Examples, `[rows, ...]`."""
        return self._call("serving_default", examples)

    def _call(self, signature: str, examples: Sequence[bytes]) -> dict[str, np.ndarray]:
        import tensorflow as tf

        found = self._loaded.signatures[signature](examples=tf.constant(list(examples)))
        return {name: np.asarray(value) for name, value in found.items()}

    def _named(self, outputs: Mapping[str, np.ndarray]) -> Predictions:
        """Return the outputs with descriptive names, if the model has them."""
        kind, classes = self._label.get("kind"), self._label.get("classes") or []
        values = outputs.get("outputs")
        if values is not None and set(outputs) <= _OF_A_CLASSIFIER and values.ndim <= 2:
            if kind == "regression" and values.ndim == 1:
                return {"prediction": values}
            probabilities = self._probabilities(values)
            if probabilities is not None and probabilities.shape[1] == len(classes):
                chosen = np.asarray(classes)[probabilities.argmax(axis=1)]
                return {
                    "prediction": chosen,
                    **{f"probability_{c}": probabilities[:, i] for i, c in enumerate(classes)},
                }
        named: Predictions = {}
        for name, value in outputs.items():
            if value.ndim == 1:
                named[name] = value
            else:
                flat = value.reshape(len(value), -1)
                named.update({f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])})
        return named

    def _probabilities(self, values: np.ndarray) -> np.ndarray | None:
        """Return probabilities `[rows, classes]`; None if the kind of the outputs is unknown."""
        from scipy.special import expit, softmax

        if self._label.get("outputs") not in ("probabilities", "logits"):
            return None
        logits = self._label["outputs"] == "logits"
        if values.ndim == 1:
            positive = expit(values) if logits else values
            return np.stack([1 - positive, positive], axis=1)
        return softmax(values, axis=1) if logits else values
