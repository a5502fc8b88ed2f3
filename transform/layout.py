"""FeatureLayout: the name, kind and position of every packed column.

Transform writes it into the transformed schema, beside the transform graph
(`transformed_metadata/schema.pbtxt`, `annotation.extra_metadata`, a
`google.protobuf.StringValue` that holds JSON), so it follows the artifact. Who trains on the
packed tensors reads it from there; this class and the reader's share nothing but the JSON.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

PACKED_FLOAT = "packed_float"
PACKED_INT = "packed_int"
PACKED_MISSING = "packed_missing"
MISSING_BITS = 32  # columns per int64 word of PACKED_MISSING

FORMAT = "tfx-largebatch/feature_layout"
VERSION = 1
TYPE_URL = "type.googleapis.com/google.protobuf.StringValue"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Model):
    """One column of the model's input: `output[:, position]`."""

    name: str
    source: str
    group: str
    kind: str
    output: str
    position: int
    vocabulary_size: int | None = None


class LayoutLabel(_Model):
    """The label's output name and kind; `classes` is known for binary and multiclass."""

    name: str
    kind: Literal["binary", "multiclass", "regression"]
    classes: int | None = None


class FeatureLayout(_Model):
    """What Transform wrote, column by column.

    Bit `i % 32` of `packed_missing[:, i // 32]` is 1 where the source of `columns[i]` was
    missing: absent, NaN, infinite, or an empty string.
    """

    columns: tuple[Column, ...]
    missing: str | None = None
    label: LayoutLabel | None = None
    weight: str | None = None
    label_sources: tuple[str, ...] = ()

    def names(self, output: str = PACKED_FLOAT) -> list[str]:
        """Names of the columns of `output`, by position."""
        ordered = sorted(
            (c for c in self.columns if c.output == output), key=lambda column: column.position
        )
        return [column.name for column in ordered]

    def to_json(self) -> str:
        """The layout as ASCII JSON, with format and version."""
        return json.dumps(self._document())

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
    def from_schema(cls, schema: Any) -> FeatureLayout | None:
        """The layout in a transformed schema; None where there is none."""
        from google.protobuf import wrappers_pb2

        for extra in schema.annotation.extra_metadata:
            message = wrappers_pb2.StringValue()
            if extra.Unpack(message) and FORMAT in message.value:
                return cls.from_json(message.value)
        return None

    def _document(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **self.model_dump(mode="json")}

    def to_annotation(self, deferred: dict[int, Any]) -> Any:
        """The serialized `StringValue` as a string tensor, with sizes known after analysis.

        Args:
            deferred: index into `columns` (-1: the label's classes) -> int64 scalar tensor that
                replaces the number there once the analyzers have run.

        Returns:
            A scalar string tensor. Its length is known while tracing, because deferred numbers
            are padded with spaces, so that the length prefix of the message is a constant.
        """
        import tensorflow as tf

        document = self._document()
        for index in deferred:
            if index == -1:
                document["label"]["classes"] = _marker(index)
            else:
                document["columns"][index]["vocabulary_size"] = _marker(index)
        text = json.dumps(document)
        parts: list[Any] = []
        for index, tensor in sorted(deferred.items(), key=lambda i: text.index(_quoted(i[0]))):
            before, text = text.split(_quoted(index), 1)
            parts += [before, tf.strings.as_string(tensor, width=_WIDTH)]
        parts.append(text)
        length = sum(len(part) if isinstance(part, str) else _WIDTH for part in parts)
        prefix = b"\x0a" + _varint(length)  # field 1, length-delimited
        return tf.strings.join([tf.constant(prefix), *parts])


_WIDTH = 20  # characters of the longest int64


def _marker(index: int) -> str:
    return f"\x00{index}\x00"


def _quoted(index: int) -> str:
    return json.dumps(_marker(index))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
