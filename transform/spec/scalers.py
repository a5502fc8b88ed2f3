"""The steps of a number: what a missing one becomes, its bounds, its scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from transform.analyzers.statistic import QUANTILE_GRID
from transform.scale.scaler import Pointwise
from transform.scale.table import CHAINABLE, NAMES
from transform.spec.common import Model, NameOrOptions

if TYPE_CHECKING:
    Scale = str
    Chainable = str
else:  # the table's names: a word that is none of them is an error that lists them
    Scale = Literal[NAMES]
    Chainable = Literal[CHAINABLE]  # scalers that may end a chain
Filling = Literal["mean", "median", "most_frequent"]


def _checked_chain(value: Any) -> Any:
    steps = list(value)
    first, last = get_args(Pointwise), CHAINABLE
    if len(steps) != 2 or steps[0] not in first or steps[1] not in last:
        raise ValueError(
            f"scale={steps} is no chain: give a function ({' or '.join(first)}) and what "
            f"scales its values ({', '.join(last)}), for example [log1p, z_score]"
        )
    return tuple(steps)


class ZScoreByKey(Model):
    """Each key's own mean and variance: `{by: company}`."""

    by: str = Field(min_length=1, description="text or int column whose values are the keys")
    max_keys: int = Field(
        default=10_000, ge=1, description="the analysis fails beyond: memory grows with the keys"
    )


class ScaleByKey(Model):
    """Scales the rows of each key separately: `scale: {z_score: {by: company}}`."""

    z_score: ZScoreByKey


class Constant(Model):
    """Imputes one value: `impute: {constant: 0}`."""

    constant: float = Field(description="value that takes the place of a missing one, unscaled")

    @field_validator("constant")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError(f"constant={value} is itself a missing value; use a finite number")
        return value


class Clip(Model):
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


ScaleChain = Annotated[tuple[Pointwise, Chainable], BeforeValidator(_checked_chain)]


def _form_of_scale(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "chain"
    return "name" if isinstance(value, str) else "options"


AnyScale = Annotated[
    Annotated[Scale, Tag("name")]
    | Annotated[ScaleChain, Tag("chain")]
    | Annotated[ScaleByKey, Tag("options")],
    Discriminator(_form_of_scale),
]
AnyFilling = Annotated[
    Annotated[Filling, Tag("name")] | Annotated[Constant, Tag("options")], NameOrOptions
]
