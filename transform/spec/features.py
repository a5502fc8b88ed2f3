"""FeatureSpec: which columns become which model inputs, declared once.

Parsing a spec needs neither TensorFlow nor the data. Whether it fits the data is a second
question, asked by `check_spec` (against a TFDV schema, before anything runs) and again
by `preprocessing_fn` (against the tensors it gets).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from transform.spec.common import OTHERS, Model, Names
from transform.spec.encoders import Encode
from transform.spec.group import Group

_CROSS_ENCODERS = ("hash", "vocabulary")


class Label(Model):
    """What the model learns; never among its inputs."""

    column: str = Field(
        min_length=1,
        examples=["tipped"],
        description="raw or derived column; also the output's name",
    )
    kind: Literal["binary", "multiclass", "regression"] = Field(
        description="two classes, several classes, or a number"
    )
    sources: Names = Field(
        default=(),
        examples=[["tips"]],
        description="raw columns that only the label is made of: absent at serving",
    )
    positive: str | int | float | None = Field(
        default=None,
        examples=[">50K"],
        description="kind binary: this value is 1, every other 0; null: 0/1 as is",
    )

    @property
    def positive_number(self) -> int | float | str | None:
        """`positive` of a column of numbers: a bool's text is 1 or 0, as CSV reads it."""
        if not isinstance(self.positive, str):
            return self.positive
        return {"true": 1, "false": 0}.get(self.positive.lower(), self.positive)

    @model_validator(mode="after")
    def _positive_is_binary(self) -> Label:
        if self.positive is not None and self.kind != "binary":
            raise ValueError(
                f"label.positive={self.positive!r} does not go with kind: {self.kind}; "
                "remove it or use kind: binary"
            )
        return self


class Cross(Model):
    """One id per combination of values.

    crosses:
      - {name: area_hour, columns: [area, hour], encode: {hash: {buckets: 1000}}}

    A float column takes part with its bucket: it needs a group with `encode: bucketize`.
    """

    name: str = Field(min_length=1, examples=["area_hour"], description="name of the output column")
    columns: Names = Field(
        examples=[["area", "hour"]], description="two or more columns by name, in a group or not"
    )
    encode: Encode = Field(
        examples=[{"hash": {"buckets": 1000}}],
        description="hash or vocabulary, of the combination",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Cross:
        where = f"cross {self.name!r}"
        if len(set(self.columns)) < 2 or len(set(self.columns)) < len(self.columns):
            raise ValueError(
                f"{where}: columns={list(self.columns)}; give two or more different columns"
            )
        if self.encode.kind not in _CROSS_ENCODERS:
            raise ValueError(
                f"{where}: encode: {self.encode.kind} takes no combination of values; use "
                f"encode: {' or '.join(_CROSS_ENCODERS)}"
            )
        return self

    @property
    def source(self) -> str:
        """The columns, as `Column.source` names them."""
        return " x ".join(repr(name) if " x " in name else name for name in self.columns)


class FeatureSpec(Model):
    """The `features:` section of a pipeline's YAML, and `custom_config["features"]` of Transform.

    derive: my_package.features.derive
    groups:
      - {name: money, columns: [fare, "trip_*"], scale: z_score}
      - {name: company, columns: [company], encode: {vocabulary: {top_k: 1000}}}
    label: {column: tip_over_20_percent, kind: binary, sources: [tips]}
    """

    derive: str | None = Field(
        examples=["my_package.features.derive"],
        default=None,
        description="dotted path of a function {name: tensor} -> {new name: tensor}, run first",
    )
    groups: tuple[Group, ...] = Field(
        default=(),
        examples=[[{"name": "numbers", "columns": ["age"], "scale": "z_score"}]],
        description="groups of columns that share one chain of steps",
    )
    crosses: tuple[Cross, ...] = Field(
        examples=[[{"name": "pair", "columns": ["a", "b"], "encode": {"hash": {"buckets": 100}}}]],
        default=(),
        description="columns whose values count together, as one id",
    )
    label: Label | None = Field(default=None, description="the column that the model predicts")
    weight: str | None = Field(
        default=None, examples=["row_weight"], description="column of example weights >= 0"
    )
    passthrough: Names = Field(
        default=(),
        examples=[["trip_id"]],
        description="columns handed on unchanged for who reads the rows (keys, ids): no model "
        "takes them",
    )
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
        if not self.groups and not self.crosses and not self.passthrough:
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
        for cross in self.crosses:
            if cross.name in seen:
                raise ValueError(
                    f"cross {cross.name!r} has the name of another cross or group; rename one"
                )
            seen[cross.name] = cross.name
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
        users = {column: f"in group {group!r}" for column, group in owner.items()}
        for cross in self.crosses:
            for column in cross.columns:
                users.setdefault(column, f"in cross {cross.name!r}")
        for column, role in targets.items():
            if column in users:
                raise ValueError(
                    f"column {column!r} is {role} and also {users[column]}; such a "
                    "column is absent at serving, so no feature can use it: remove it from one"
                )

    def raw_columns(self) -> tuple[str, ...]:
        """Return the columns mentioned by name (not by glob, `dtype` or `others`), in spec order.

        With `derive`, some of them may be derived columns: only the data shows which.
        """
        names = [column for group in self.groups for column in group.explicit]
        names += [column for cross in self.crosses for column in cross.columns]
        if self.label is not None:
            names += [self.label.column, *self.label.sources]
        if self.weight is not None:
            names.append(self.weight)
        return tuple(dict.fromkeys([*names, *self.passthrough]))
