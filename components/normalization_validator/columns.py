"""Which columns the transformed examples have, and how a record batch becomes arrays.

With a FeatureLayout (written by our Transform) the columns, their kinds and their mask come from
it. Without one (anybody's Transform) every float feature of the transformed schema is a column, and
a vector of length n is n of them, `name[0]` .. `name[n-1]`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

from components.normalization_validator.check import RULES
from shared_core import feature_layout as layouts
from shared_core.feature_layout import FeatureLayout, ImageFeature, read_schema
from shared_core.images import read_images
from trainer_module.common.progress import RowCounter

#: Kinds whose value says that the source was missing: the value itself is not an imputed one.
_NEVER_IMPUTED = frozenset({"missing_indicator"})
#: Kinds of columns that are places for the terms of a text, the largest weight first: what is in
#: one of them says nothing of the others. One column for each text is looked at, its first id.
_PLACES_OF_TEXTS = frozenset({"text", "text_weight"})
#: Values, and rows, of the arrays of one step: they fit into a processor's cache. Half and twice as
#: many take about as long; 65,536 rows of 20 columns take nearly twice as long per row.
_VALUES = 2**16
_LEAST_ROWS, _MOST_ROWS = 256, 4096
_PIXELS = 2**22  # of the images of one step


class Column(NamedTuple):
    """One column of the transformed examples.

    `source` is its own name without a layout. `mask_bit` is its bit in the packed missing mask,
    None where no value of it is imputed. The others are those of the layout's column.
    """

    name: str
    kind: str | None
    position: int
    vocabulary_size: int | None = None
    mask_bit: int | None = None
    source: str = ""
    validation_rule: str | None = None
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None
    is_aspect: bool = False


_OF_LAYOUT = [name for name in Column._fields if name != "mask_bit"]


class Feature(NamedTuple):
    """One feature of the transformed examples.

    `size` is its number of values per row, None where that varies: all its values are then one
    column. The columns of an image are its channels.
    """

    name: str
    size: int | None
    columns: tuple[Column, ...]
    image: ImageFeature | None = None


class FeatureSet(NamedTuple):
    """What the validator reads: features, the mask beside them, and the schema of them all."""

    features: tuple[Feature, ...]
    mask: Feature | None
    schema: schema_pb2.Schema

    def column_names(self) -> list[str]:
        """Return every column's name, feature by feature."""
        return [column.name for feature in self.features for column in feature.columns]

    def with_kinds(self, kind_of: Callable[[str], str | None]) -> FeatureSet:
        """Return the same, where the columns that `kind_of` knows are checked as of that kind."""

        def of_kind(column: Column) -> Column:
            kind = kind_of(column.name)
            if kind is None:
                return column
            rule = None if kind == "none" else kind
            return column._replace(kind=kind, validation_rule=rule, bounds=None)

        features = (f._replace(columns=tuple(map(of_kind, f.columns))) for f in self.features)
        return self._replace(features=tuple(features))


class Values(NamedTuple):
    """The values of one feature in one batch, [rows, size].

    Of an image, it is the number of pixels of each value, int64 [256, channels].

    `imputed` is None where none is known to be; `absent` is the number of rows without a value.
    """

    values: np.ndarray
    imputed: np.ndarray | None
    absent: int


class Batch(NamedTuple):
    """Rows: their number, and the values of each feature in the order of the FeatureSet."""

    rows: int
    features: tuple[Values, ...]


def read_feature_set(transform_graph_uri: str) -> FeatureSet:
    """Read layout and schema; ValueError: they contradict each other, or hold no float."""
    schema = read_schema(transform_graph_uri)
    layout = FeatureLayout.from_transform_graph(transform_graph_uri)
    features = _from_schema(schema) if layout is None else _from_layout(layout, schema)
    if not features:
        raise ValueError(
            f"The transformed schema under {transform_graph_uri} holds no float feature: "
            "NormalizationValidator has nothing to validate. Remove the node, or let Transform "
            "write the scaled columns as floats."
        )
    mask = None
    if layout is not None and layout.missing is not None:
        mask = Feature(layout.missing, math.ceil(len(layout.columns) / 32), ())
    wanted = {feature.name for feature in (*features, *([mask] if mask else []))}
    read = schema_pb2.Schema(feature=[f for f in schema.feature if f.name in wanted])
    return FeatureSet(features=features, mask=mask, schema=read)


def _from_schema(schema: schema_pb2.Schema) -> tuple[Feature, ...]:
    floats = (f for f in schema.feature if f.type == schema_pb2.FLOAT)
    features = []
    for feature in sorted(floats, key=lambda f: f.name):
        size = _size(feature)
        names = [feature.name]
        if size is not None and size != 1:
            names = [f"{feature.name}[{i}]" for i in range(size)]
        columns = tuple(Column(name, None, i, source=name) for i, name in enumerate(names))
        features.append(Feature(feature.name, size, columns))
    return tuple(features)


def _from_layout(layout: FeatureLayout, schema: schema_pb2.Schema) -> tuple[Feature, ...]:
    sizes = {feature.name: _size(feature) for feature in schema.feature}
    columns: dict[str, list[Column]] = {}
    texts: set[str] = set()
    for bit, column in enumerate(layout.columns):
        _check_rule(column)
        size = sizes.get(column.output, 0)
        if size is not None and column.position >= size:
            raise ValueError(
                f"The feature layout puts column {column.name!r} at position {column.position} of "
                f"{column.output!r}, of which the transformed schema has {size} values per row."
            )
        if column.kind in _PLACES_OF_TEXTS:
            if column.source in texts:
                continue
            texts.add(column.source)
        masked = layout.missing is not None and column.kind not in _NEVER_IMPUTED
        columns.setdefault(column.output, []).append(
            Column(
                mask_bit=bit if masked else None,
                **{name: getattr(column, name) for name in _OF_LAYOUT},
            )
        )
    ids = (Column(t.name, "tokens", 0, t.vocabulary_size, source=t.source) for t in layout.tokens)
    return (
        *(
            Feature(name, sizes[name], tuple(sorted(held, key=lambda column: column.position)))
            for name, held in columns.items()
        ),
        *(Feature(each.name, None, (each,)) for each in ids),
        *(Feature(each.name, 1, _channels(each), each) for each in layout.images),
    )


def _channels(image: ImageFeature) -> tuple[Column, ...]:
    return tuple(
        Column(
            *(f"{image.name}[{i}]", "image", i),
            source=image.source,
            validation_rule="z_score",
            is_aspect=True,
        )
        for i in range(image.channels)
    )


def _check_rule(column: layouts.Column) -> None:
    rule = column.validation_rule
    if rule not in (None, *RULES) and column.bounds is None:
        raise ValueError(
            f"The feature layout gives column {column.name!r} the validation rule {rule!r} without "
            f"bounds; this validator knows {', '.join(RULES)}: install the same version for "
            "Transform and validator."
        )


def _size(feature: schema_pb2.Feature) -> int | None:
    if not feature.HasField("shape"):
        return None
    return math.prod(dim.size for dim in feature.shape.dim)


class BatchReader:
    """Turns record batches into arrays; picklable, so that Beam can ship it."""

    def __init__(self, feature_set: FeatureSet):
        self._features = feature_set.features
        self._mask = feature_set.mask
        columns = len(feature_set.column_names())
        self._rows = max(_LEAST_ROWS, min(_MOST_ROWS, _VALUES // columns))
        pixels = sum(math.prod(each.image.shape) for each in self._features if each.image)
        if pixels:
            self._rows = max(1, min(self._rows, _PIXELS // pixels))
        self._counter = RowCounter()

    def __call__(self, batch: pa.RecordBatch) -> Iterator[Batch]:
        """Yield the values of a record batch in parts; those of Parquet have many rows."""
        for start in range(0, batch.num_rows, self._rows):
            part, mask = batch.slice(start, self._rows), None
            if self._mask is not None:
                words, present = _matrix(part, self._mask.name, self._mask.size)
                mask = np.zeros([part.num_rows, words.shape[1]], dtype=np.int64)
                mask[present] = words
            values = tuple(self._values(part, each, mask) for each in self._features)
            yield Batch(part.num_rows, values)
            self._counter.add(part.num_rows)

    def _values(self, batch: pa.RecordBatch, feature: Feature, mask: np.ndarray | None) -> Values:
        matrix, present = _matrix(batch, feature.name, feature.size)
        absent = int(batch.num_rows - np.count_nonzero(present))
        if feature.size is None:
            return Values(matrix, None, absent)
        if feature.image is not None:
            return Values(_count_bytes(matrix[:, 0], feature.image), None, absent)
        imputed = None
        if mask is not None:
            imputed = _unpack(mask[present], feature.columns)
        if feature.size != len(feature.columns):
            matrix = matrix[:, [column.position for column in feature.columns]]
        return Values(matrix, imputed, absent)


def _count_bytes(stored: np.ndarray, image: ImageFeature) -> np.ndarray:
    """Return how many pixels have each value, int64 [256, channels], of images as written."""
    pixels = np.reshape(_reader(image.model_dump_json())(stored), [-1, image.channels])
    return np.stack([np.bincount(channel, minlength=256) for channel in pixels.T], axis=1)


@functools.lru_cache
def _reader(described: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that is traced once in a process, for an image as JSON."""
    import tensorflow as tf

    image = ImageFeature.model_validate_json(described)
    spec = tf.TensorSpec([None], tf.string)
    read = tf.function(
        lambda stored: read_images({image.name: stored}, [image])[image.name],
        input_signature=[spec],
    )
    return lambda stored: read(tf.constant(stored, tf.string)).numpy()


def _matrix(batch: pa.RecordBatch, name: str, size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a feature as [rows that have some, size], and which rows those are."""
    index = batch.schema.get_field_index(name)
    if index < 0 or pa.types.is_null(batch.schema.field(index).type):
        present = np.zeros(batch.num_rows, dtype=bool)
        return np.zeros([0, 1 if size is None else size]), present
    column = batch.column(index)
    if column.null_count or pa.types.is_fixed_size_list(column.type):
        lengths = np.asarray(column.value_lengths().fill_null(0))
    else:
        lengths = np.diff(np.asarray(column.offsets))
    flat = np.asarray(column.flatten())
    present = lengths > 0
    if size is None:
        return flat.reshape(-1, 1), present
    wrong = lengths[present & (lengths != size)]
    if wrong.size:
        raise ValueError(
            f"feature {name!r} holds {int(wrong[0])} values in a row, where the transformed schema "
            f"says {size}: the transformed examples and the transform graph do not belong together."
        )
    return flat.reshape(-1, size), present


def _unpack(words: np.ndarray, columns: Iterable[Column]) -> np.ndarray:
    """Unpack the missing mask: bool [rows, columns] from int64 [rows, words]."""
    bits = [column.mask_bit for column in columns]
    word = np.array([0 if bit is None else bit // 32 for bit in bits])
    mask = np.array([0 if bit is None else 1 << bit % 32 for bit in bits])
    return ((words.T[word] & mask[:, None]) != 0).T  # a column's values side by side
