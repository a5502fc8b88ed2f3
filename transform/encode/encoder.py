"""What is known of an encoder: one record, made in the file of its name.

    ENCODER = Encoder(name="hash", takes={"string": "", "int": ""}, reads="texts", apply=...)

`table.py` names them all, and whoever asks something of an encoder asks its record: which types of
columns it takes, what its outputs are called, how they are computed, what the page of a run says
of it, and what NormalizationValidator may expect. Its options are a model of the same name in
`spec/encoders.py`.

Reading a record loads no TensorFlow, so that a spec is checked against a schema in no time: the
functions that compute import it themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from shared_core.feature_layout import Column
from transform.analyzers.fitted import FittedColumn
from transform.block import Block, Columns, Explanation, IdCount, Separate, tf
from transform.columns.inputs import DenseColumns
from transform.spec.common import ColumnType, SeenTypes
from transform.spec.group import ResolvedGroup

# The model in `spec/encoders.py` that has the encoder's name.
_EncoderOptions: TypeAlias = Any


class Inputs(NamedTuple):
    """What there is to encode.

    Attributes:
        dense: The columns of one value per row.
        raw: Every column as it came: Tensor, SparseTensor or RaggedTensor.
        types: Every column's type.
        files: Column or cross -> name of its vocabulary's file.
    """

    dense: DenseColumns
    raw: Columns
    types: SeenTypes
    files: Mapping[str, str]


@dataclass(frozen=True)
class Members:
    """All columns of one encoder, over all groups: it encodes them at once."""

    resolved: tuple[ResolvedGroup, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(name for each in self.resolved for name in each.columns)

    @property
    def options(self) -> tuple[_EncoderOptions, ...]:
        """The encoder's options for each column."""
        return tuple(option_of(each) for each in self.resolved for _ in each.columns)

    @property
    def imputed(self) -> list[bool]:
        """Whether each column's most frequent value takes the place of a missing one."""
        return [
            each.group.impute == "most_frequent" for each in self.resolved for _ in each.columns
        ]


def option_of(resolved: ResolvedGroup) -> _EncoderOptions:
    """Return the options of a group's encoder."""
    assert resolved.group.encode is not None
    return resolved.group.encode.option


def number_of_ids(
    option: _EncoderOptions, columns: Sequence[Column], fitted: FittedColumn
) -> Explanation:
    """Explain an id: how many values a vocabulary has, and how many ids there are."""
    first = columns[0]
    if first.vocabulary_size is None:
        return {}
    learned = {"values": first.vocabulary_size - first.extra_ids} if first.vocabulary else {}
    return {**learned, "ids": first.vocabulary_size}


def explain_nothing(
    option: _EncoderOptions, columns: Sequence[Column], fitted: FittedColumn
) -> Explanation:
    """Return {}: the options of the encoder say all."""
    return {}


@dataclass(frozen=True)
class Encoder:
    """All that is known of one way to encode.

    Attributes:
        name: The key under `encode:`, and the `kind` of its columns where `kind_of` says no other.
        takes: Types of columns, each with what its values have to be (empty: any).
        reads: How `Inputs.dense` holds its columns: `numbers`, `texts`, `own type` (texts where the
            column is one), or not at all: `lists`, of any number of values in a row.
        apply: Encodes all columns of this kind at once.
        endings: Options -> what is appended to a column's name, one per packed output.
        kind_of: Options and an ending -> `Column.kind` of that output.
        has_indicator: Whether each column has an output for missing values, behind all others.
        names_file: Whether its columns may learn vocabularies, which are files, or become features.
        of_texts: Ids of texts `[batch]` and their number, from (texts, options, file of the
            vocabulary); None where the encoder cannot encode a cross.
        explain: What to say of a column beside its options, from (options, its outputs in the
            layout, what was fitted).
        is_aspect: Whether an output is one aspect of its column, and rightly constant where the
            column is not: no row has this value, all dates are of one year.
    """

    name: str
    takes: Mapping[ColumnType, str]
    reads: Literal["numbers", "texts", "own type", "lists"]
    apply: Callable[[Inputs, Members], Sequence[Block | Separate]]
    endings: Callable[[_EncoderOptions], list[str]] = lambda option: [""]
    kind_of: Callable[[_EncoderOptions, str], str] | None = None
    has_indicator: bool = False
    names_file: bool = False
    of_texts: Callable[[tf.Tensor, _EncoderOptions, str], tuple[tf.Tensor, IdCount]] | None = None
    explain: Callable[[_EncoderOptions, Sequence[Any], FittedColumn], Explanation] = number_of_ids
    is_aspect: bool = False
