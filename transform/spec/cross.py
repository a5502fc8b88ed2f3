"""A cross: two or more columns whose values count together."""

from __future__ import annotations

from pydantic import Field, model_validator

from transform.spec.common import Model, Names
from transform.spec.encoders import Encode

CROSS_ENCODERS = ("hash", "vocabulary")


class Cross(Model):
    """One id per combination of values.

    crosses:
      - {name: area_hour, columns: [area, hour], encode: {hash: {buckets: 1000}}}

    A float column takes part with its bucket: it needs a group with `encode: bucketize`.
    """

    name: str = Field(min_length=1, description="of the output column")
    columns: Names = Field(description="two or more columns by name, in a group or not")
    encode: Encode = Field(description="hash or vocabulary, of the combination")

    @model_validator(mode="after")
    def _consistent(self) -> Cross:
        where = f"cross {self.name!r}"
        if len(set(self.columns)) < 2 or len(set(self.columns)) < len(self.columns):
            raise ValueError(
                f"{where}: columns={list(self.columns)}; give two or more different columns"
            )
        if self.encode.kind not in CROSS_ENCODERS:
            raise ValueError(
                f"{where}: encode: {self.encode.kind} takes no combination of values; use "
                f"encode: {' or '.join(CROSS_ENCODERS)}"
            )
        return self

    @property
    def source(self) -> str:
        """The columns, as `Column.source` names them."""
        return " x ".join(repr(name) if " x " in name else name for name in self.columns)
