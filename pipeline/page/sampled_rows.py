"""A sample of the evaluated rows with the model's predictions, for what needs single rows.

The artifacts hold sums over all rows. Partial dependence needs rows, so
the exported model predicts a bounded sample when the page is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName

if TYPE_CHECKING:
    import pyarrow as pa

Artifact: TypeAlias = Callable[[NodeName, str], Path | None]
"""The folder of a node's output, or None: `RunInputs.artifact`."""

MOST_ROWS = 10_000
_MOST_VALUES = 1_000_000  # rows times columns
_MOST_GROUPS = 200  # row groups that are opened
_ROWS_PER_CALL = 10_000


class NoSample(ValueError):
    """Why there is no sample, as a sentence for the page."""


@dataclass(frozen=True)
class SampledRows:
    """A sample of the evaluated rows.

    Attributes:
        model: The exported model.
        rows: The raw rows.
        total: Number of rows of the split.
        split: Name of the split.
        labels: Their labels, float64 `[rows]`: a number, or the number of the class.
        predictions: float64 `[rows, outputs]`: values, or a probability for each class; one column
            for a binary label. See `ExportedModel.predict`.
        weights: Their weights, float64 `[rows]`.
    """

    model: ExportedModel
    rows: pa.RecordBatch
    total: int
    split: str
    labels: np.ndarray
    predictions: np.ndarray
    weights: np.ndarray


class ExportedModel:
    """A SavedModel of the Trainer: raw rows -> predictions, labels and weights."""

    def __init__(self, folder: Path) -> None:
        """Load it.

        Raises:
            NoSample: It was not exported by this pipeline.
        """
        import tensorflow as tf

        files = [folder / "assets.extra" / name for name in ("label.json", "raw_columns.json")]
        if not all(file.is_file() for file in files):
            raise NoSample(f"The model under {folder} has no description of its columns or label.")
        label, columns = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        self._loaded: Any = tf.saved_model.load(str(folder))
        for name in ("serving_default", "transform_features"):
            if name not in self._loaded.signatures:
                raise NoSample(f"The model under {folder} has no signature {name!r}.")
        self.kind: str | None = label.get("kind")
        self.classes: list[str] = label.get("classes") or []
        self.columns: list[str] = [each["name"] for each in columns["columns"]]
        self._outputs: str = label.get("outputs", "")

    def predict(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return predictions of raw rows, float64 `[rows, outputs]`.

        These are values for a regression, the probability of the positive class `[rows, 1]` for a
        binary label, and the probability of each class for several.

        Raises:
            NoSample: The model has several outputs, or outputs of an unknown meaning.
        """
        found = self._call("serving_default", rows)
        if self.kind == "regression":
            name = "outputs" if "outputs" in found else next(iter(found))
            values = found[name].reshape(rows.num_rows, -1)
            if values.shape[1] != 1:
                raise NoSample(f"The model has {values.shape[1]} outputs; the page shows one.")
            return values.astype(np.float64)
        if "probabilities" in found:
            values = found["probabilities"].astype(np.float64)
        elif "outputs" in found and self._outputs in ("probabilities", "logits"):
            values = found["outputs"].astype(np.float64).reshape(rows.num_rows, -1)
            values = _probabilities(values) if self._outputs == "logits" else values
        else:
            raise NoSample(
                f"The outputs of the model ({', '.join(sorted(found))}) are not known to be "
                "probabilities."
            )
        return values[:, -1:] if self.kind == "binary" else values

    def transformed(self, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        """Return what Transform makes of raw rows, `[rows, ...]` by name."""
        return self._call("transform_features", rows)

    def _call(self, signature: str, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
        import tensorflow as tf

        from components.arrow_example_gen.columns import serialize

        parts: dict[str, list[np.ndarray]] = {}
        for start in range(0, rows.num_rows, _ROWS_PER_CALL):
            examples = tf.constant(serialize(rows.slice(start, _ROWS_PER_CALL)))
            for name, tensor in self._loaded.signatures[signature](examples=examples).items():
                if isinstance(tensor, tf.Tensor):
                    parts.setdefault(name, []).append(tensor.numpy())
        return {name: np.concatenate(values) for name, values in parts.items()}


def sample_of(config: PipelineConfig, artifact: Artifact) -> SampledRows:
    """Return a sample of the evaluated rows, with predictions.

    Raises:
        NoSample: The model or the rows are gone, or the model cannot take them.
    """
    exported, examples = (
        artifact(node, key)
        for node, key in ((NodeName.TRAINER, "model"), (NodeName.EXAMPLE_GEN, "examples"))
    )
    split = config.data.evaluation_split
    if exported is None or examples is None:
        raise NoSample("This run has no exported model or no rows, or they were deleted.")
    rows, total = read_rows(examples / f"Split-{split}")
    model = ExportedModel(exported / "Format-Serving")
    try:
        predictions, transformed = model.predict(rows), model.transformed(rows)
        labels = _numbers(transformed, config.label.column, rows.num_rows)
    except NoSample:
        raise
    except Exception as error:  # TensorFlow's, of rows that the model refuses
        line = (str(error).strip().splitlines() or [""])[0][:200]
        raise NoSample(
            f"The exported model cannot predict the sampled rows: {type(error).__name__}: {line}"
        ) from error
    weight = config.features.weight
    return SampledRows(
        model=model,
        rows=rows,
        total=total,
        split=split,
        labels=labels,
        predictions=predictions,
        weights=np.ones(len(labels))
        if weight is None
        else _numbers(transformed, weight, rows.num_rows),
    )


def read_rows(folder: Path, most: int = MOST_ROWS) -> tuple[pa.RecordBatch, int]:
    """Return at most `most` rows of a split, fewer if they have many columns, and how many it has.

    Each row group gives its first rows, in proportion to its rows. ExampleGen shuffles the rows of
    a row group, so that they are a random sample of it, and no other rows are decoded.

    Args:
        folder: Folder of the split, with Parquet files.
        most: The largest number of rows.

    Raises:
        NoSample: There is no row, or no Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(file) for file in sorted(folder.glob("*.parquet"))]
    if not files:
        raise NoSample(f"There are no Parquet files in {folder}.")
    groups = [(file, i) for file in files for i in range(file.metadata.num_row_groups)]
    total = sum(file.metadata.num_rows for file in files)
    if not total:
        raise NoSample(f"The split in {folder} has no rows.")
    most = min(most, max(200, _MOST_VALUES // max(1, len(files[0].schema_arrow))), total)
    groups = groups[:: -(-len(groups) // _MOST_GROUPS)]
    sizes = np.array([file.metadata.row_group(i).num_rows for file, i in groups])
    ends = np.floor(min(most, sizes.sum()) * sizes.cumsum() / sizes.sum() + 1e-6).astype(int)
    batches = []
    for (file, group), count in zip(groups, np.diff(ends, prepend=0).tolist(), strict=True):
        left = count
        for batch in file.iter_batches(batch_size=max(1, count), row_groups=[group]):
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if left <= 0:
                break
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.to_batches()[0], total


def _numbers(transformed: Mapping[str, np.ndarray], name: str, rows: int) -> np.ndarray:
    if name not in transformed:
        raise NoSample(f"Transform's features have no {name!r}.")
    values = transformed[name].reshape(rows, -1)
    if values.shape[1] != 1:
        raise NoSample(f"{name!r} has {values.shape[1]} values in a row; the page shows one.")
    return values[:, 0].astype(np.float64)


def _probabilities(logits: np.ndarray) -> np.ndarray:
    if logits.shape[1] == 1:
        return np.exp(-np.logaddexp(0, -logits))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
