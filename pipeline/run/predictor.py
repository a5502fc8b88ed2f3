"""A pushed model as a function of columns: raw values in, predictions with their names out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Kind

_KINDS: dict[str, Kind] = {"string": "string", "float32": "float", "int64": "int"}
_OF_A_CLASSIFIER = {"outputs", "prediction", "classes", "probabilities"}
_EXPECTED = {"int": "a whole number", "float": "a number", "string": "a text"}


class Wrong(NamedTuple):
    """A value that the model cannot take."""

    row: int
    column: str
    value: str
    expected: str


def latest_version(model: Path) -> Path:
    """The SavedModel itself, or the highest-numbered version below the folder.

    Raises:
        ConfigError: there is none.
    """
    if (model / "saved_model.pb").is_file():
        return model
    versions = [
        folder
        for folder in (model.iterdir() if model.is_dir() else ())
        if folder.name.isdigit() and (folder / "saved_model.pb").is_file()
    ]
    if not versions:
        raise ConfigError(
            f"--model={model}: no SavedModel there, and none in a numbered folder below. "
            "`python -m pipeline run` prints where it pushed the model."
        )
    return max(versions, key=lambda folder: int(folder.name))


class Predictor:
    """A loaded SavedModel, the types of its raw columns, and what its outputs mean."""

    def __init__(self, version: Path):
        """Loads a SavedModel.

        Args:
            version: Its folder.

        Raises:
            ConfigError: It cannot be loaded, or is no model that this pipeline pushed.
        """
        import tensorflow as tf

        self.path = version
        try:
            self._loaded: Any = tf.saved_model.load(str(version))
        except Exception as error:  # of protobuf, TensorFlow or the file system, as it is damaged
            reason = str(error).strip().splitlines() or [""]
            raise ConfigError(
                f"--model={version}: cannot be loaded ({type(error).__name__}: {reason[0][:200]}); "
                "it is damaged, or not whole. Push it again, or name another version."
            ) from None
        signatures = self._loaded.signatures
        listed = version / "assets.extra" / "raw_columns.json"
        if "serving_default" not in signatures or not listed.is_file():
            raise ConfigError(
                f"--model={version}: has no serving_default signature or no {listed.name} "
                "(the raw columns that it takes); use a model that this pipeline pushed."
            )
        self._serve = signatures["serving_default"]
        columns = json.loads(listed.read_text(encoding="utf-8"))["columns"]
        self.kinds: dict[str, Kind] = {c["name"]: _KINDS[c["dtype"]] for c in columns}
        named = version / "assets.extra" / "label.json"
        self._label: dict[str, Any] = (
            json.loads(named.read_text(encoding="utf-8")) if named.is_file() else {}
        )

    def __call__(self, batch: pa.RecordBatch, decimal: str) -> tuple[dict[str, Any], list[Wrong]]:
        """Predictions of the rows that the model can take, and what is wrong with the others.

        Args:
            batch: has every column of `kinds`, as its texts or values.
            decimal: mark in numbers that are texts.

        Returns:
            Column -> `[rows]`, without the wrong rows; and those, the first value of each.
        """
        import pyarrow as pa
        import tensorflow as tf
        from tfx_bsl.coders import example_coder

        from components.arrow_example_gen.columns import as_lists

        columns, wrong = {}, {}
        for name, kind in self.kinds.items():
            found = batch[batch.schema.get_field_index(name)]
            columns[name], faulty = _as_kind(found, kind, decimal)
            for row in faulty:
                value = str(found[row].as_py())
                wrong.setdefault(row, Wrong(row, name, value, _EXPECTED[kind]))
        rows = np.setdiff1d(np.arange(batch.num_rows), list(wrong))
        if not len(rows):
            return {}, list(wrong.values())
        taken = pa.array(rows)
        lists = [as_lists(columns[name].take(taken), kind) for name, kind in self.kinds.items()]
        encode = example_coder.RecordBatchToExamplesEncoder().encode
        examples = encode(pa.RecordBatch.from_arrays(lists, list(self.kinds)))
        outputs = self._serve(examples=tf.constant(examples))
        found = {name: _flat(np.asarray(value)) for name, value in outputs.items()}
        return self._named(found), [wrong[row] for row in sorted(wrong)]

    def _named(self, outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Outputs under names that say what they are, as far as the model tells."""
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
        named: dict[str, Any] = {}
        for name, value in outputs.items():
            if value.ndim == 1:
                named[name] = value
            else:
                flat = value.reshape(len(value), -1)
                named.update({f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])})
        return named

    def _probabilities(self, values: np.ndarray) -> np.ndarray | None:
        """`[rows, classes]`, or None where nobody knows that the outputs are of this kind."""
        if self._label.get("outputs") not in ("probabilities", "logits"):
            return None
        logits = self._label["outputs"] == "logits"
        if values.ndim == 1:
            positive = _sigmoid(values) if logits else values
            return np.stack([1 - positive, positive], axis=1)
        return _softmax(values) if logits else values


def _flat(values: np.ndarray) -> np.ndarray:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -values))


def _softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _as_kind(column: pa.Array, kind: Kind, decimal: str) -> tuple[pa.Array, list[int]]:
    """A column as the model takes it, and the rows whose value it cannot take."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    from components.arrow_example_gen import csv_types
    from components.arrow_example_gen.columns import as_lists

    if types.is_string(column.type) and kind != "string":
        return csv_types.numbers(column, kind, decimal)
    if types.is_floating(column.type) and kind == "int":
        missing = pc.or_(pc.is_null(column), pc.fill_null(pc.is_nan(column), True))
        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
        held = missing.to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            faulty = ~held & ~((values == np.floor(values)) & (np.abs(values) < 2.0**63))
        whole = np.where(held | faulty, 0, values).astype(np.int64)
        return pa.array(whole, mask=held | faulty), np.flatnonzero(faulty).tolist()
    try:
        as_lists(column, kind)
        return column, []
    except pa.ArrowException:
        faulty = [i for i in range(len(column)) if not _fits(column.slice(i, 1), kind)]
        kept = np.ones(len(column), bool)
        kept[faulty] = False
        return pc.if_else(pa.array(kept), column, pa.nulls(len(column), column.type)), faulty


def _fits(value: pa.Array, kind: Kind) -> bool:
    import pyarrow as pa

    from components.arrow_example_gen.columns import as_lists

    try:
        as_lists(value, kind)
    except pa.ArrowException:
        return False
    return True
