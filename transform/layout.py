r"""FeatureLayout: the name, kind and position of every packed column.

Transform writes it as JSON among the assets of the transform graph
(`<transform_graph>/transform_fn/assets/feature_layout`), so it follows the artifact. Who trains
on the packed tensors reads it from there; this class and the reader's share nothing but the JSON.

The text is written while the analysis runs, so what only the analysis finds is not in it:

- the size of a vocabulary: the lines of `assets/<column.vocabulary>`, plus `column.extra_ids`;
- the value that a learned 0/1 column stands for: line `column.entry` (from 0) of
  `assets/<column.entry_of>`, which makes its name `<source>=<value>` (line breaks and backslashes
  in the value are `\n`, `\r` and `\\`, as in the file);
- the number of classes of a multiclass label: `int_domain.max + 1` of the label's feature in
  `transformed_metadata/schema.pbtxt`.

(A schema annotation would be the natural place, but TFT's open-source builds drop annotations:
they lack `tensorflow_transform.annotations_pb2`, see `tensorflow_transform/common.py`.)
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

PACKED_FLOAT = "packed_float"
PACKED_INT = "packed_int"
PACKED_MISSING = "packed_missing"
MISSING_BITS = 32  # columns per int64 word of PACKED_MISSING

FORMAT = "tfx-largebatch/feature_layout"
VERSION = 1
ASSETS = "transform_fn/assets"
ASSET = "feature_layout"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Model):
    """One column of the model's input: `output[:, position]`.

    `vocabulary_size` counts all ids (unseen and missing values have their own): the rows of an
    embedding. It is None for floats, and in the written file for kind `vocabulary`.

    The last three are for NormalizationValidator: the rule that it checks the column by (`z_score`,
    `min_max`, ...; null: none; `judged_as` in JSON), the bounds of a rule that it does not have
    itself (statistic -> lowest, highest), and whether the column is one aspect of its source, and
    rightly constant where the source is not.
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


class LayoutLabel(_Model):
    """The label's output name and kind.

    `classes` is None for regression, and in the written file for multiclass. `positive` is the
    value that counts as 1, where the spec names one.
    """

    name: str
    kind: Literal["binary", "multiclass", "regression"]
    classes: int | None = None
    positive: str | int | float | None = None


class FeatureLayout(_Model):
    """What Transform wrote, column by column.

    Bit `i % 32` of `packed_missing[:, i // 32]` is 1 where the source of `columns[i]` was
    missing: absent, NaN, infinite, or an empty string. `features` is the spec that made the
    columns, as `FeatureSpec.model_validate` takes it. `passthrough` names the outputs that are
    raw columns, for who reads the rows (keys, ids): no model takes them.
    """

    columns: tuple[Column, ...]
    missing: str | None = None
    label: LayoutLabel | None = None
    weight: str | None = None
    passthrough: tuple[str, ...] = ()
    features: dict[str, Any] | None = None

    def names(self, output: str = PACKED_FLOAT) -> list[str]:
        """Names of the columns of `output`, by position."""
        ordered = sorted(
            (c for c in self.columns if c.output == output), key=lambda column: column.position
        )
        return [column.name for column in ordered]

    def to_json(self) -> str:
        """The layout as ASCII JSON, with format and version."""
        described = self.model_dump(mode="json", by_alias=True)
        for column in described["columns"]:
            if column["bounds"] is None:  # most rules are the validator's own
                del column["bounds"]
        return json.dumps({"format": FORMAT, "version": VERSION, **described})

    @classmethod
    def from_json(cls, text: str) -> FeatureLayout:
        """Parses what `to_json` wrote.

        Raises:
            ValueError: `text` is not a layout, or one of another version.
        """
        document = json.loads(text)
        if document.pop("format", None) != FORMAT:
            raise ValueError(f"not a feature layout: its format is not {FORMAT!r}")
        version = document.pop("version", None)
        if version != VERSION:
            raise ValueError(f"feature layout of version {version}; this code reads {VERSION}")
        return cls.model_validate(document)

    @classmethod
    def from_transform_graph(cls, uri: str) -> FeatureLayout | None:
        """Reads the layout of a transform graph, vocabulary sizes and classes filled in.

        Args:
            uri: of the `transform_graph` artifact, or `TFTransformOutput`'s folder.

        Returns:
            The layout; None where the graph has none.
        """
        import tensorflow as tf
        from google.protobuf import text_format
        from tensorflow_metadata.proto.v0 import schema_pb2

        path = f"{uri}/{ASSETS}/{ASSET}"
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path) as file:
            layout = cls.from_json(file.read())

        @functools.lru_cache
        def entries(vocabulary: str) -> list[str]:
            with tf.io.gfile.GFile(f"{uri}/{ASSETS}/{vocabulary}", "rb") as file:
                return [line.rstrip(b"\n").decode(errors="replace") for line in file]

        columns = tuple(_completed(column, entries) for column in layout.columns)
        label = layout.label
        if label is not None and label.kind == "multiclass":
            with tf.io.gfile.GFile(f"{uri}/transformed_metadata/schema.pbtxt") as file:
                schema = text_format.Parse(file.read(), schema_pb2.Schema())
            (feature,) = (f for f in schema.feature if f.name == label.name)
            label = label.model_copy(update={"classes": feature.int_domain.max + 1})
        return layout.model_copy(update={"columns": columns, "label": label})


def _completed(column: Column, entries: Callable[[str], list[str]]) -> Column:
    """With what the vocabulary's file tells."""
    if column.vocabulary is not None:
        size = len(entries(column.vocabulary)) + column.extra_ids
        return column.model_copy(update={"vocabulary_size": size})
    if column.entry_of is not None and column.entry is not None:
        values = entries(column.entry_of)
        if column.entry < len(values):  # fewer values than top_k: the rest stays 0
            return column.model_copy(update={"name": f"{column.source}={values[column.entry]}"})
    return column
