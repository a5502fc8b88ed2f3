"""A group: columns that share one chain, and which steps go together.

The steps of a number are what a missing one becomes, its bounds, and its scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from transform.block import QUANTILE_GRID
from transform.scale.scaler import Pointwise, Scaler
from transform.scale.table import CHAINABLE, NAMES, SCALERS, chain_kind
from transform.spec.common import OTHERS, ColumnType, Model, NameOrOptions, Names, is_glob
from transform.spec.encoders import Encode

if TYPE_CHECKING:
    Scale = str
    Chainable = str
else:  # the table's names: a word that is none of them is an error that lists them
    Scale = Literal[NAMES]
    Chainable = Literal[CHAINABLE]  # scalers that may end a chain
_Filling = Literal["mean", "median", "most_frequent"]


def _checked_chain(value: Any) -> Any:
    steps = list(value)
    first, last = get_args(Pointwise), CHAINABLE
    if len(steps) != 2 or steps[0] not in first or steps[1] not in last:
        raise ValueError(
            f"scale={steps} is no chain: give a function ({' or '.join(first)}) and what "
            f"scales its values ({', '.join(last)}), for example [log1p, z_score]"
        )
    return tuple(steps)


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

    min: float | None = Field(
        default=None, examples=[0.0], description="lower bound, in the column's unit; null: none"
    )
    max: float | None = Field(
        default=None, examples=[100.0], description="upper bound, in the column's unit; null: none"
    )
    quantiles: tuple[float, float] | None = Field(
        default=None,
        examples=[[0.01, 0.99]],
        description="lower and upper quantile, multiples of 0.001 in [0, 1]",
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


_ScaleChain = Annotated[tuple[Pointwise, Chainable], BeforeValidator(_checked_chain)]


_AnyScale = Annotated[
    Annotated[Scale, Tag("name")] | Annotated[_ScaleChain, Tag("chain")],
    Discriminator(lambda value: "chain" if isinstance(value, list | tuple) else "name"),
]
_AnyFilling = Annotated[
    Annotated[_Filling, Tag("name")] | Annotated[Constant, Tag("options")], NameOrOptions
]


_SCALES = f"{' | '.join(NAMES)} | [log1p, z_score]"


class Group(Model):
    """Columns that share one chain: select -> impute -> clip -> scale or encode."""

    name: str = Field(
        min_length=1, examples=["money"], description="name of the group, for messages and reports"
    )
    columns: Names = Field(
        default=(),
        examples=[["fare", "trip_*"]],
        description="names and globs; `others`: every column that no group names. A column's own "
        "name is no glob; [[], [*] and [?] in a glob are these characters",
    )
    dtype: ColumnType | None = Field(
        default=None, description="keeps columns of this type; alone: every such column left"
    )
    length: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="the columns hold lists of so many numbers, or none, in each row: each "
        "position is scaled separately and becomes `<name>_0`, `<name>_1`, ...",
    )
    exclude: Names = Field(default=(), description="names and globs that a glob must not take")
    impute: _AnyFilling | None = Field(
        default=None,
        description="value of a missing one: mean, median, most_frequent or {constant: x}; null: "
        "median with scale: robust or gaussian or with clip.quantiles, else mean; encoders: only "
        "most_frequent, null is a separate id",
    )
    missing_indicator: bool = Field(
        default=False, description="adds a 0/1 column `<name>_missing` per column"
    )
    clip: Clip | None = Field(default=None, description="bounds of the values; null: none")
    scale: _AnyScale | None = Field(
        default=None, description="how numbers are scaled; a group has scale or encode"
    )
    encode: Encode | None = Field(
        default=None, description="how values become ids, 0/1 columns or terms"
    )
    share: bool = Field(
        default=False,
        description="with encode: vocabulary, integer or hash: a value has the same id in all "
        "columns of the group, and one embedding in the default model",
    )

    @field_validator("scale", mode="before")
    @classmethod
    def _without_options(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            raise ValueError(
                f"scale={dict(value)} has options, and no scaler takes any; statistics per key are "
                "those of tft.scale_to_z_score_per_key in your own preprocessing_fn"
            )
        return value

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
                f"encode; give exactly one: scale: {_SCALES}, "
                f"or encode: {{{' | '.join(Encode.model_fields)}: ...}}"
            )
        if self.share and (self.encode is None or not self.encode.option.takes_share):
            step = "scale" if self.encode is None else f"encode: {self.encode.kind}"
            raise ValueError(
                f"{where}: share: true does not go with {step}; remove it, or use encode: "
                "vocabulary, integer or hash"
            )
        if self.encode is not None:
            if self.length is not None:
                raise ValueError(
                    f"{where}: length goes with scale, not with encode: {self.encode.kind}; remove "
                    "it (encode: multi_hot takes lists of any length)"
                )
            self._refuse_number_options(where, self.encode)
        elif self.clips_by_quantiles:
            self._refuse_two_passes(where)
        self._refuse_constant_outside_clip(where)
        return self

    def _refuse_number_options(self, where: str, encode: Encode) -> None:
        kind = encode.kind
        own_missing = encode.option.own_missing
        if self.impute is not None and own_missing is not None:
            raise ValueError(
                f"{where}: impute does not go with encode: {kind}, where missing has "
                f"{own_missing}; remove it"
            )
        if self.impute not in (None, "most_frequent"):
            given = "{constant: ...}" if isinstance(self.impute, Constant) else self.impute
            raise ValueError(
                f"{where}: impute: {given} does not go with encode, where missing has an own id; "
                "remove it, or use impute: most_frequent"
            )
        if self.missing_indicator:
            raise ValueError(
                f"{where}: missing_indicator does not go with encode; missing has an own id"
            )
        if self.clip is not None and not encode.option.takes_clip:
            raise ValueError(f"{where}: clip does not go with encode: {kind}; remove it")
        if self.clips_by_quantiles:
            raise ValueError(
                f"{where}: clip.quantiles does not go with encode: {kind}, whose buckets are "
                "quantiles already; remove it"
            )

    def _refuse_two_passes(self, where: str) -> None:
        """Reject statistics of values clipped at bounds that the same pass finds."""
        learns = not self._scaler.follows_learned_bounds
        if learns or self.impute == "mean":
            scale = self._scaler.name.rpartition("+")[2]
            needs = f"scale: {scale} needs statistics" if learns else "impute: mean needs the mean"
            raise ValueError(
                f"{where}: {needs} of the clipped values, which clip.quantiles knows only after "
                "the one pass over the data; use scale: robust or min_max with impute: median or "
                "{constant: x}, or clip: {min, max}"
            )

    def _refuse_constant_outside_clip(self, where: str) -> None:
        if self.clip is None or self.clips_by_quantiles or not isinstance(self.impute, Constant):
            return
        low = -math.inf if self.clip.min is None else self.clip.min
        high = math.inf if self.clip.max is None else self.clip.max
        if not low <= self.impute.constant <= high:
            raise ValueError(
                f"{where}: impute.constant={self.impute.constant} lies outside clip "
                f"[{low}, {high}]; use a constant inside the bounds"
            )

    @property
    def clips_by_quantiles(self) -> bool:
        """Whether the bounds are learned."""
        return self.clip is not None and self.clip.quantiles is not None

    @property
    def filling(self) -> _Filling | float:
        """What a missing number becomes, the default resolved."""
        if isinstance(self.impute, Constant):
            return self.impute.constant
        if self.impute is not None:
            return self.impute
        by_rank = self._scaler.imputes_median or self.clips_by_quantiles
        return "median" if by_rank else "mean"

    @property
    def kind(self) -> str:
        """What happens to the columns, as in `Column.kind`."""
        if self.encode is not None:
            return self.encode.kind
        return chain_kind(*self.scale) if isinstance(self.scale, tuple) else str(self.scale)

    @property
    def first(self) -> Pointwise | None:
        """The function of a number that comes before all that is learned, of a chain."""
        return self.scale[0] if isinstance(self.scale, tuple) else None

    @property
    def _scaler(self) -> Scaler:
        return SCALERS[self.kind]

    @property
    def explicit(self) -> tuple[str, ...]:
        """Columns given by name, neither as `others` nor by what may be a glob.

        Whether `v[0]` is a column's name depends on the data: `select.resolve`.
        """
        return tuple(c for c in self.columns if not is_glob(c) and c != OTHERS)


@dataclass(frozen=True)
class ResolvedGroup:
    """A group and the columns that it takes, in order."""

    group: Group
    columns: tuple[str, ...]
