"""Reads what Transform wrote about its packed outputs: a name for every position."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

FORMAT = "tfx-largebatch/feature_layout"
VERSION = 1
ASSET = "feature_layout"


class _Record(BaseModel):
    # A later writer may say more than this reader knows; what it says must have the right type.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Column(_Record):
    """One column at one position of a packed output, or an output of its own.

    Attributes:
        name: Output column, unique.
        source: The raw or derived column that it comes from.
        group: Group of the feature specification.
        kind: z_score, min_max, vocabulary, one_hot, missing_indicator, ...
        output: Transformed feature that holds it.
        position: Index inside that feature.
        vocabulary_size: For ids, the number of distinct ids; None for floats.
        vocabulary: Asset of the transform graph that lists a vocabulary's entries, one per line.
        extra_ids: Ids beside those entries, for unseen and missing values.
        entry_of: Asset whose line `entry` (from 0) is the value that a learned 0/1 column stands
            for; its name is then `<source>=<value>`.
        entry: That line.
        validation_rule: What NormalizationValidator checks (`judged_as` in JSON); None: nothing.
        bounds: Of a rule that it does not have itself: statistic -> lowest and highest value.
        is_aspect: Whether it is one aspect of its source, and rightly constant where that is not.
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

    @property
    def is_id(self) -> bool:
        """Whether the column holds ids rather than numbers."""
        return self.vocabulary_size is not None or self.vocabulary is not None


class Label(_Record):
    """The transformed feature to predict.

    Attributes:
        name: Its name.
        kind: binary, multiclass or regression.
        classes: Number of classes; None for regression.
        positive: Value that counts as 1 of a binary label, where one is named.
    """

    name: str
    kind: str | None = None
    classes: int | None = None
    positive: str | int | float | None = None


class FeatureLayout(_Record):
    """Names and positions of the transformed features.

    layout = FeatureLayout.from_transform_graph(fn_args.transform_graph_path)
    layout.names("packed_float")   # ("fare", "trip_miles", ...)

    Attributes:
        columns: What a model takes.
        missing: Transformed feature that tells which values were missing, if any.
        label: What is predicted.
        weight: Transformed feature that weighs the rows.
        passthrough: Transformed features for who reads the rows, keys and ids: no model takes
            them.
    """

    columns: tuple[Column, ...]
    missing: str | None = None
    label: Label | None = None
    weight: str | None = None
    passthrough: tuple[str, ...] = ()

    @property
    def float_columns(self) -> tuple[Column, ...]:
        """Columns that are numbers, in order of output and position."""
        return self._sorted(column for column in self.columns if not column.is_id)

    @property
    def int_columns(self) -> tuple[Column, ...]:
        """Columns that are ids, in order of output and position."""
        return self._sorted(column for column in self.columns if column.is_id)

    def of(self, output: str) -> tuple[Column, ...]:
        """Returns the columns of one transformed feature, by position."""
        return self._sorted(column for column in self.columns if column.output == output)

    def names(self, output: str) -> tuple[str, ...]:
        """Returns the names of one transformed feature's positions."""
        return tuple(column.name for column in self.of(output))

    @classmethod
    def from_json(cls, text: str) -> FeatureLayout:
        """Returns the layout that a JSON text describes.

        Raises:
            ValueError: Not JSON, another format, a version newer than this reader, or positions
                that overlap or leave gaps.
        """
        import json

        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"the feature layout is not JSON ({error}): run Transform again."
            ) from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError(f"not a feature layout: its format is not {FORMAT!r}.")
        if values.get("version") != VERSION:
            raise ValueError(
                f"feature layout version {values.get('version')!r}, this trainer reads {VERSION}: "
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
        """Returns the layout inside a transform graph, or None for a Transform without one.

        What only the analysis knew, the size of a vocabulary, is counted in the graph's assets.

        Args:
            uri: Folder of a TransformGraph artifact.

        Raises:
            ValueError: See `from_json`.
        """
        import tensorflow as tf

        assets = os.path.join(uri, "transform_fn", "assets")
        path = os.path.join(assets, ASSET)
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path) as file:
            layout = cls.from_json(file.read())

        @functools.lru_cache
        def entries(vocabulary: str) -> list[str]:
            with tf.io.gfile.GFile(os.path.join(assets, vocabulary), "rb") as file:
                return [line.rstrip(b"\n").decode(errors="replace") for line in file]

        def completed(column: Column) -> Column:
            if column.vocabulary is not None:
                size = len(entries(column.vocabulary)) + column.extra_ids
                return column.model_copy(update={"vocabulary_size": size})
            if column.entry_of is not None and column.entry is not None:
                values = entries(column.entry_of)
                if column.entry < len(values):
                    name = f"{column.source}={values[column.entry]}"
                    return column.model_copy(update={"name": name})
            return column

        return layout.model_copy(update={"columns": tuple(map(completed, layout.columns))})

    @staticmethod
    def _sorted(columns: Any) -> tuple[Column, ...]:
        return tuple(sorted(columns, key=lambda column: (column.output, column.position)))


def read_schema(transform_graph_uri: str) -> Any:
    """Returns the transformed schema (schema_pb2.Schema) of a TransformGraph artifact.

    Raises:
        ValueError: The folder holds none.
    """
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    path = os.path.join(transform_graph_uri, "transformed_metadata", "schema.pbtxt")
    if not tf.io.gfile.exists(path):
        raise ValueError(f"{path} does not exist: give the folder of a TransformGraph artifact.")
    with tf.io.gfile.GFile(path) as file:
        return text_format.Parse(file.read(), schema_pb2.Schema())
