r"""FeatureLayout: the name, kind and position of every packed column.

    layout = FeatureLayout.from_transform_graph(fn_args.transform_graph_path)
    layout.names("packed_float")  # ["fare", "trip_miles", ...]

Transform writes it as JSON among the assets of the transform graph, for the Trainer and the
NormalizationValidator. (A schema annotation would be the natural place, but TFT's open-source
builds drop annotations: they lack `tensorflow_transform.annotations_pb2`.)

The text is written while the analysis runs, so what only the analysis finds is read elsewhere: the
size of a vocabulary and the value of a learned 0/1 column in the vocabulary's file (line breaks
and backslashes in a value are `\n`, `\r` and `\\` there and in the column's name), the number of
classes of a label in the transformed schema, the mean and variance of pixels in the graph.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

PACKED_FLOAT = "packed_float"
PACKED_INT = "packed_int"
PACKED_MISSING = "packed_missing"
MISSING_BITS = 32  # columns per int64 word of PACKED_MISSING
RESERVED_TOKENS = 2  # ids of padding and of unknown tokens, in front of the others
MISSING_INT = -(2**63)  # a missing value of a regression's label of whole numbers

_FORMAT = "tfx-largebatch/feature_layout"
VERSION = 1
ASSETS = "transform_fn/assets"
ASSET = "feature_layout"
IMAGE_STATISTICS = "image_statistics.json"  # image -> mean and variance, beside the graph


class _Record(BaseModel):
    # A later writer may say more than this reader knows; what it says must have the right type.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Column(_Record):
    """One column at one position of a packed output, or a separate output.

    Attributes:
        name: Output column, unique.
        source: The raw or derived column that it comes from.
        group: Group of the feature specification.
        kind: z_score, min_max, vocabulary, one_hot, missing_indicator, ...
        output: Transformed feature that holds it.
        position: Index inside that feature.
        vocabulary_size: Number of ids, those of unseen and missing values too: the rows of an
            embedding. None for floats, and in the written file for a learned vocabulary.
        vocabulary: Asset of the transform graph that lists a vocabulary's entries, one per line.
        extra_ids: Ids beside those entries, for unseen and missing values.
        entry_of: Asset whose line `entry` (from 0) is the value that a learned 0/1 column stands
            for; its name is then `<source>=<value>`.
        entry: That line.
        validation_rule: What NormalizationValidator checks (`judged_as` in JSON); None: nothing.
        bounds: Of a rule that the validator does not have itself: statistic -> lowest and highest.
        is_aspect: Whether it is one aspect of its source, and rightly constant where that is not.
        shared_ids: Columns with the same text here have the same ids for the same values, so that
            one embedding serves them all.
    """

    name: str
    source: str
    group: str
    kind: str
    output: str
    position: int
    vocabulary_size: int | None = None
    vocabulary: str | None = None
    extra_ids: int = 0
    entry_of: str | None = None
    entry: int | None = None
    validation_rule: str | None = Field(
        default=None,
        validation_alias=AliasChoices("judged_as", "validation_rule"),
        serialization_alias="judged_as",
    )
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None
    is_aspect: bool = False
    shared_ids: str | None = None

    @property
    def is_id(self) -> bool:
        """Whether the column holds ids rather than numbers."""
        return self.vocabulary_size is not None or self.vocabulary is not None


class LayoutLabel(_Record):
    """The transformed feature to predict.

    A regression's is int64 where the column is, `MISSING_INT` where missing, so that no digit is
    lost before its mean is taken off; else float32, NaN where missing. `classes` is None for
    regression, and in the written file for multiclass. `positive` counts as 1 of a binary label.
    """

    name: str
    kind: str | None = None
    classes: int | None = None
    positive: str | int | float | None = None


class ImageFeature(_Record):
    """A transformed feature of pictures: bytes per row, of uint8 `[height, width, channels]`.

    Attributes:
        name: Transformed feature, and input of a model: uint8 `[rows, height, width, channels]`.
        source: The raw column of encoded pictures.
        group: Group of the feature specification.
        height: In pixels, as are the bytes of a row unless they are encoded.
        width: In pixels.
        channels: 1 (grey) or 3 (RGB).
        resize: How a picture of another shape becomes this one: crop, pad or stretch.
        store: `pixels`, or `encoded`: the bytes of the file, which the trainer decodes.
        mean: Of each channel over all pixels of the analysis data; empty in the written file.
        variance: Likewise, the mean of the squared distances to `mean`.
    """

    name: str
    source: str
    group: str
    height: int
    width: int
    channels: int
    resize: str = "crop"
    store: str = "pixels"
    mean: tuple[float, ...] = ()
    variance: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.height, self.width, self.channels

    @property
    def sums(self) -> str:
        """Name of the feature that statistics are added up from; see `transform.encode.image`."""
        return f"{self.name}_pixel_sums"


class TokenFeature(_Record):
    """A transformed feature of token ids: int64, from 0 to `max_length` ids per row.

    Attributes:
        name: Transformed feature, and input of a model: int64 `[rows, length]`, where 0 is padding.
        source: The raw column of texts.
        group: Group of the feature specification.
        max_length: Most ids of a row.
        vocabulary_size: Number of ids, those of padding (0) and of unknown tokens (1) too: the rows
            of an embedding. None in the written file for a learned vocabulary.
        vocabulary: Asset that lists the tokens from id 2 on, one per line; None: ids of bytes.
    """

    name: str
    source: str
    group: str
    max_length: int
    vocabulary_size: int | None = None
    vocabulary: str | None = None


class FeatureLayout(_Record):
    """Names and positions of the transformed features.

    Bit `i % 32` of `packed_missing[:, i // 32]` is 1 where the source of `columns[i]` was
    missing: absent, NaN, infinite, or an empty string.

    Attributes:
        columns: What a model takes.
        missing: Transformed feature that shows which values were missing, if any.
        label: What is predicted.
        weight: Transformed feature that weighs the rows.
        images: Features of pictures, each a separate output.
        tokens: Features of token ids, each a separate output.
        passthrough: Keys and ids for who reads the rows: no model takes them.
        features: The specification, as `FeatureSpec.model_validate` takes it.
    """

    columns: tuple[Column, ...]
    missing: str | None = None
    label: LayoutLabel | None = None
    weight: str | None = None
    images: tuple[ImageFeature, ...] = ()
    tokens: tuple[TokenFeature, ...] = ()
    passthrough: tuple[str, ...] = ()
    features: dict[str, Any] | None = None

    def of(self, output: str) -> tuple[Column, ...]:
        """Return the columns of one transformed feature, by position."""
        found = (column for column in self.columns if column.output == output)
        return tuple(sorted(found, key=lambda column: column.position))

    def names(self, output: str = PACKED_FLOAT) -> list[str]:
        """Return the names of one transformed feature's positions."""
        return [column.name for column in self.of(output)]

    def to_json(self) -> str:
        """Return the layout as ASCII JSON, with format and version."""
        described = self.model_dump(mode="json", by_alias=True)
        for column in described["columns"]:
            for rare in ("bounds", "shared_ids"):
                if column[rare] is None:
                    del column[rare]
        for rare in ("images", "tokens"):
            if not described[rare]:
                del described[rare]
        return json.dumps({"format": _FORMAT, "version": VERSION, **described})

    @classmethod
    def from_json(cls, text: str) -> FeatureLayout:
        """Return the layout that a JSON text describes.

        Raises:
            ValueError: Another format or version, or positions that overlap or leave gaps.
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"the feature layout is not JSON ({error}): run Transform again."
            ) from None
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise ValueError(f"not a feature layout: its format is not {_FORMAT!r}.")
        if values.get("version") != VERSION:
            raise ValueError(
                f"feature layout version {values.get('version')!r}, this code reads {VERSION}: "
                "install the same version for Transform and Trainer."
            )
        try:
            layout = cls.model_validate(values)
        except ValidationError as error:
            raise ValueError(f"the feature layout is damaged: {error}") from None
        for output in {column.output for column in layout.columns}:
            positions = [column.position for column in layout.of(output)]
            if positions != list(range(len(positions))):
                raise ValueError(
                    f"the feature layout names positions {positions} of {output!r}, expected each "
                    f"from 0 to {len(positions) - 1} once: run Transform again."
                )
        return layout

    @classmethod
    def from_transform_graph(cls, uri: str) -> FeatureLayout | None:
        """Read the layout of a graph, with vocabulary sizes and classes; None if it has none.

        Raises:
            ValueError: See `from_json`.
        """
        import tensorflow as tf

        path = os.path.join(uri, ASSETS, ASSET)
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path) as file:
            layout = cls.from_json(file.read())

        @functools.lru_cache
        def entries(vocabulary: str) -> list[str]:
            with tf.io.gfile.GFile(os.path.join(uri, ASSETS, vocabulary), "rb") as file:
                return [line.rstrip(b"\n").decode(errors="replace") for line in file]

        columns = [_completed(column, entries) for column in layout.columns]
        counts = Counter(column.name for column in columns)
        for place, column in enumerate(columns):
            # `a=b=c` is value `b=c` of `a` and value `c` of `a=b`.
            if column.entry is not None and counts[column.name] > 1:
                name = f"{column.name}_{column.position}"
                columns[place] = column.model_copy(update={"name": name})
        label = layout.label
        if label is not None and label.kind == "multiclass" and label.classes is None:
            (feature,) = (f for f in read_schema(uri).feature if f.name == label.name)
            label = label.model_copy(update={"classes": feature.int_domain.max + 1})
        tokens = tuple(
            each.model_copy(
                update={"vocabulary_size": len(entries(each.vocabulary)) + RESERVED_TOKENS}
            )
            if each.vocabulary is not None
            else each
            for each in layout.tokens
        )
        images = layout.images and _with_statistics(layout.images, uri)
        found = {"columns": tuple(columns), "label": label, "images": images, "tokens": tokens}
        return layout.model_copy(update=found)


def _completed(column: Column, entries: Callable[[str], list[str]]) -> Column:
    """Return a column with the facts of the vocabulary's file."""
    if column.vocabulary is not None:
        size = len(entries(column.vocabulary)) + column.extra_ids
        return column.model_copy(update={"vocabulary_size": size})
    if column.entry_of is not None and column.entry is not None:
        values = entries(column.entry_of)
        if column.entry < len(values):  # fewer values than top_k: the rest stays 0
            return column.model_copy(update={"name": f"{column.source}={values[column.entry]}"})
    return column


def _with_statistics(images: tuple[ImageFeature, ...], uri: str) -> tuple[ImageFeature, ...]:
    """Return the images with the mean and the variance of each channel."""
    import tensorflow as tf

    path = os.path.join(uri, IMAGE_STATISTICS)
    if not tf.io.gfile.exists(path):
        raise ValueError(
            f"{path} does not exist: for pictures ({', '.join(each.source for each in images)}), "
            "take components.transform.ParquetTransform in place of TFX's Transform."
        )
    with tf.io.gfile.GFile(path) as file:
        found = json.load(file)
    return tuple(ImageFeature.model_validate({**dict(i), **found[i.name]}) for i in images)


def read_schema(transform_graph_uri: str) -> Any:
    """Return the transformed schema (schema_pb2.Schema) of a TransformGraph artifact."""
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    path = os.path.join(transform_graph_uri, "transformed_metadata", "schema.pbtxt")
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{path} does not exist: give the folder of a TransformGraph artifact.")
    with tf.io.gfile.GFile(path) as file:
        return text_format.Parse(file.read(), schema_pb2.Schema())
