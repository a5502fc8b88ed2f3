"""FeatureSpec: which columns become which model inputs, declared once.

Parsing a spec needs neither TensorFlow nor the data. Whether it fits the data is a second
question, asked by `FeatureSpec.check` (against a TFDV schema, before anything runs) and again
by `preprocessing_fn` (against the tensors it gets).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

ColumnType = Literal["float", "int", "string"]
Scale = Literal["z_score", "min_max", "robust", "log1p", "none"]
LabelKind = Literal["binary", "multiclass", "regression"]

OTHERS = "others"
QUANTILE_GRID = 1000  # learned quantiles are multiples of 1/1000, and as exact as that
GLOB_CHARACTERS = frozenset("*?[")


def is_glob(pattern: str) -> bool:
    """Whether `pattern` selects by wildcard (`V*`, `pickup_?`, `x[0-9]`) and not by name."""
    return bool(GLOB_CHARACTERS & set(pattern))


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# A YAML scalar where a list is meant: `columns: fare` is `columns: [fare]`.
Names = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Constant(_Model):
    """Imputes one value: `impute: {constant: 0}`."""

    constant: float = Field(description="value that takes the place of a missing one, unscaled")

    @field_validator("constant")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError(f"constant={value} is itself a missing value; use a finite number")
        return value


class Clip(_Model):
    """Bounds in the column's own unit, or learned ones; statistics are of the clipped values.

    clip: {min: 0, max: 100}          absolute, either may be left out
    clip: {quantiles: [0.01, 0.99]}   the column's own quantiles over the analysis data
    """

    min: float | None = None
    max: float | None = None
    quantiles: tuple[float, float] | None = Field(
        default=None, description="lower and upper quantile, multiples of 0.001 in [0, 1]"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Clip:
        if self.quantiles is not None:
            return self._checked_quantiles(*self.quantiles)
        if self.min is None and self.max is None:
            raise ValueError(
                "clip has no bound; give min, max or both, or quantiles, or leave clip out"
            )
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None and not math.isfinite(bound):
                raise ValueError(f"clip.{name}={bound} is not finite; leave clip.{name} out")
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError(
                f"clip.min={self.min} is not below clip.max={self.max}; swap or change them"
            )
        return self

    def _checked_quantiles(self, low: float, high: float) -> Clip:
        if self.min is not None or self.max is not None:
            raise ValueError("clip has both quantiles and min or max; give one kind of bound")
        if not 0 <= low < high <= 1:
            raise ValueError(
                f"clip.quantiles={[low, high]} is no range of shares; give 0 <= low < high <= 1"
            )
        for level in (low, high):
            if abs(level * QUANTILE_GRID - round(level * QUANTILE_GRID)) > 1e-9:
                raise ValueError(
                    f"clip.quantiles={[low, high]}: {level} is finer than the sketch's error of "
                    f"{1 / QUANTILE_GRID}; use {round(level, 3)}"
                )
        return self


class Vocabulary(_Model):
    """Ids by frequency: 0..V-1 known values, then `oov_buckets`, then one id for missing."""

    top_k: int | None = Field(default=None, ge=1, description="values kept, most frequent first")
    oov_buckets: int = Field(default=1, ge=1, description="ids for unseen values, by hash")


class Integer(_Model):
    """Ids are the values themselves: 0..size-1, then one for out of range, one for missing."""

    size: int = Field(ge=1, le=2**53, description="values 0..size-1 keep their own id")


class Bucketize(_Model):
    """Ids by quantile: 0..buckets-1, then one for missing."""

    buckets: int = Field(ge=2, description="number of buckets of about equal count")


class Hash(_Model):
    """Ids by a stable hash of the value's text: 0..buckets-1, then one for missing."""

    buckets: int = Field(ge=1, description="number of buckets that values are hashed into")


def _texts_of_ints(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in value]


class OneHot(_Model):
    """A 0/1 float column per listed value, one for any other value and one for missing.

    encode: {one_hot: {values: [Cash, Credit Card]}}
    """

    values: Annotated[tuple[str, ...], BeforeValidator(_texts_of_ints)] = Field(
        min_length=1, description="texts, or ints for an int column; quote what YAML reads as bool"
    )

    @field_validator("values")
    @classmethod
    def _distinct(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if "" in values:
            raise ValueError("one_hot.values holds the empty text, which is missing; remove it")
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"one_hot.values holds {twice[0]!r} twice; remove one")
        return values


class Encode(_Model):
    """Exactly one way to turn a column into ids, or into 0/1 columns."""

    vocabulary: Vocabulary | None = None
    integer: Integer | None = None
    bucketize: Bucketize | None = None
    hash: Hash | None = None
    one_hot: OneHot | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        # `encode: vocabulary` and, in YAML, `encode: {vocabulary: }` for `{vocabulary: {}}`.
        if value == "vocabulary" or value == {"vocabulary": None}:
            return {"vocabulary": {}}
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Encode:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"encode names {given or 'no encoder'}; give exactly one of "
                f"{', '.join(type(self).model_fields)}"
            )
        return self

    @property
    def kind(self) -> str:
        """The encoder's name, as in `Column.kind`."""
        return next(n for n in type(self).model_fields if getattr(self, n) is not None)


class Group(_Model):
    """Columns that share one chain: select -> impute -> clip -> scale or encode."""

    name: str = Field(min_length=1)
    columns: Names = Field(
        default=(), description="names and globs; `others`: every column that no group names"
    )
    dtype: ColumnType | None = Field(
        default=None, description="keeps columns of this type; alone: every such column left"
    )
    exclude: Names = Field(default=(), description="names and globs that a glob must not take")
    impute: Literal["mean", "median"] | Constant | None = Field(
        default=None,
        description="value of a missing number: mean, median or {constant: x}; null: median with "
        "scale: robust or clip.quantiles, else mean",
    )
    missing_indicator: bool = Field(
        default=False, description="adds a 0/1 column `<name>_missing` per column"
    )
    clip: Clip | None = None
    scale: Scale | None = None
    encode: Encode | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Group:
        where = f"group {self.name!r}"
        if not self.columns and self.dtype is None:
            raise ValueError(
                f"{where} selects nothing; give columns (names, globs or `others`) or dtype"
            )
        if OTHERS in self.columns and len(self.columns) > 1:
            raise ValueError(f"{where}: columns mixes `others` with names; `others` stands alone")
        if (self.scale is None) == (self.encode is None):
            raise ValueError(
                f"{where} has {'neither scale nor' if self.scale is None else 'both scale and'} "
                "encode; give exactly one: scale: z_score | min_max | robust | log1p | none, "
                "or encode: {vocabulary | integer | bucketize | hash | one_hot: ...}"
            )
        if self.encode is not None:
            self._refuse_number_options(where)
        elif self.clips_by_quantiles:
            self._refuse_two_passes(where)
        if (
            isinstance(self.impute, Constant)
            and self.clip is not None
            and not self.clips_by_quantiles
        ):
            low = -math.inf if self.clip.min is None else self.clip.min
            high = math.inf if self.clip.max is None else self.clip.max
            if not low <= self.impute.constant <= high:
                raise ValueError(
                    f"{where}: impute.constant={self.impute.constant} lies outside clip "
                    f"[{low}, {high}]; use a constant inside the bounds"
                )
        return self

    def _refuse_number_options(self, where: str) -> None:
        assert self.encode is not None
        kind = self.encode.kind
        if self.impute is not None:
            raise ValueError(f"{where}: impute does not go with encode; missing has an own id")
        if self.missing_indicator:
            raise ValueError(
                f"{where}: missing_indicator does not go with encode; missing has an own id"
            )
        if self.clip is not None and kind != "bucketize":
            raise ValueError(f"{where}: clip does not go with encode: {kind}; remove it")
        if self.clips_by_quantiles:
            raise ValueError(
                f"{where}: clip.quantiles does not go with encode: bucketize, whose buckets are "
                "quantiles already; remove it"
            )

    def _refuse_two_passes(self, where: str) -> None:
        """Mean and variance of values clipped at bounds that the same pass only finds."""
        needs = "scale: z_score" if self.scale == "z_score" else "impute: mean"
        if self.scale == "z_score" or self.impute == "mean":
            raise ValueError(
                f"{where}: {needs} needs the mean of the clipped values, which clip.quantiles "
                "knows only after the one pass over the data; use scale: robust or min_max with "
                "impute: median or {constant: x}, or clip: {min, max}"
            )

    @property
    def clips_by_quantiles(self) -> bool:
        """Whether the bounds are learned."""
        return self.clip is not None and self.clip.quantiles is not None

    @property
    def filling(self) -> Literal["mean", "median"] | float:
        """What a missing number becomes, the default resolved."""
        if isinstance(self.impute, Constant):
            return self.impute.constant
        if self.impute is not None:
            return self.impute
        return "median" if self.scale == "robust" or self.clips_by_quantiles else "mean"

    @property
    def kind(self) -> str:
        """What happens to the columns, as in `Column.kind`."""
        return self.encode.kind if self.encode is not None else str(self.scale)

    @property
    def explicit(self) -> tuple[str, ...]:
        """Columns given by name, neither by glob nor as `others`."""
        return tuple(c for c in self.columns if not is_glob(c) and c != OTHERS)


class Label(_Model):
    """What the model learns; never among its inputs."""

    column: str = Field(min_length=1, description="raw or derived column; also the output's name")
    kind: LabelKind
    sources: Names = Field(
        default=(), description="raw columns that only the label is made of: absent at serving"
    )
    positive: str | int | float | None = Field(
        default=None, description="kind binary: this value is 1, every other 0; null: 0/1 as is"
    )

    @model_validator(mode="after")
    def _positive_is_binary(self) -> Label:
        if self.positive is not None and self.kind != "binary":
            raise ValueError(
                f"label.positive={self.positive!r} does not go with kind: {self.kind}; "
                "remove it or use kind: binary"
            )
        return self


class FeatureSpec(_Model):
    """The `features:` section of a pipeline's YAML, and `custom_config["features"]` of Transform.

    derive: my_package.features.derive
    groups:
      - {name: money, columns: [fare, "trip_*"], scale: z_score}
      - {name: company, columns: [company], encode: {vocabulary: {top_k: 1000}}}
    label: {column: tip_over_20_percent, kind: binary, sources: [tips]}
    """

    derive: str | None = Field(
        default=None,
        description="dotted path of a function {name: tensor} -> {new name: tensor}, run first",
    )
    groups: tuple[Group, ...] = ()
    label: Label | None = None
    weight: str | None = Field(default=None, description="column of example weights >= 0")
    passthrough: Names = Field(default=(), description="raw columns handed on unchanged")
    packed: bool = Field(default=True, description="false: one output per column, no packing")
    missing_mask: bool = Field(
        default=True, description="writes `packed_missing`: which values were imputed"
    )

    @field_validator("derive")
    @classmethod
    def _dotted(cls, value: str | None) -> str | None:
        if value is not None and not all(part.isidentifier() for part in value.split(".")):
            raise ValueError(f"derive={value!r} is no dotted path; use package.module.function")
        if value is not None and "." not in value:
            raise ValueError(f"derive={value!r} names no module; use package.module.function")
        return value

    @model_validator(mode="after")
    def _names_unique(self) -> FeatureSpec:
        if not self.groups and not self.passthrough:
            raise ValueError("features has no groups; give at least one group of columns")
        seen: dict[str, str] = {}
        owner: dict[str, str] = {}
        for group in self.groups:
            if group.name in seen:
                raise ValueError(f"two groups are named {group.name!r}; rename one")
            seen[group.name] = group.name
            for column in group.explicit:
                if column in owner:
                    raise ValueError(
                        f"column {column!r} is in group {owner[column]!r} and again in group "
                        f"{group.name!r}; a column belongs to one group, remove it from one"
                    )
                owner[column] = group.name
        others = [group.name for group in self.groups if OTHERS in group.columns]
        if len(others) > 1:
            raise ValueError(f"groups {others} both take `others`; only one can")
        self._refuse_targets_as_features(owner)
        return self

    def _refuse_targets_as_features(self, owner: dict[str, str]) -> None:
        targets = {}
        if self.label is not None:
            targets[self.label.column] = "the label"
            targets.update(dict.fromkeys(self.label.sources, "in label.sources"))
        if self.weight is not None:
            targets[self.weight] = "the weight"
        for column, role in targets.items():
            if column in owner:
                raise ValueError(
                    f"column {column!r} is {role} and also in group {owner[column]!r}; such a "
                    "column is absent at serving, so no feature can use it: remove it from one"
                )

    def raw_columns(self) -> tuple[str, ...]:
        """Columns mentioned by name (globs, `dtype` and `others` name none), in spec order.

        With `derive`, some of them may be derived columns: only the data can tell.
        """
        names = [column for group in self.groups for column in group.explicit]
        if self.label is not None:
            names += [self.label.column, *self.label.sources]
        if self.weight is not None:
            names.append(self.weight)
        return tuple(dict.fromkeys([*names, *self.passthrough]))

    def check(self, schema: schema_pb2.Schema) -> None:
        """Raises ValueError unless the spec fits data of this TFDV schema.

        With `derive`, the function is traced on placeholders (this imports TensorFlow) to
        learn which columns it makes.

        Raises:
            ValueError: a column that the data lacks, one of a type that its group cannot take,
                one with several values per row, one in two groups, a pattern without a match;
                or `derive` cannot be imported or fails.
        """
        from transform.select import column_types, resolve

        types = column_types(schema)
        if self.derive is not None:
            from transform.derive import derived_types

            types = {**types, **derived_types(self.derive, schema)}
        resolve(self, types)
