"""What NormalizationValidator accepts.

Imports nothing but pydantic, so that a pipeline's configuration can embed NormalizationLimits.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: Section of the pipeline's YAML, so that a message names the field to change.
SECTION = "normalization"

TRAIN_SPLIT = "train"
"""The split that Transform analysed."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ZScoreLimits(_Frozen):
    """Columns of rule z_score, train split, over the values that were not imputed."""

    max_abs_mean: float = Field(
        default=0.01, ge=0.0, description="largest |mean|, in standard deviations"
    )
    max_std_error: float = Field(
        default=0.01,
        ge=0.0,
        description="largest |std - 1|; not checked for a constant column (std 0)",
    )


class NormalizationLimits(_Frozen):
    """What NormalizationValidator accepts.

    `kinds` says how columns are scaled where Transform's output does not say it itself: names or
    globs, the first match wins (`{"trip_*": "z_score"}`). `ignore` names columns that are reported
    but not checked.
    """

    max_non_finite_share: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="largest share of NaN and infinite values, in any split",
    )
    max_imputed_share: float | None = Field(
        default=None, ge=0.0, le=1.0, description="largest share of imputed values, in any split"
    )
    allow_constant: bool = Field(
        default=True,
        description="whether a column may be constant on train, where its raw column is too",
    )
    z_score: ZScoreLimits = Field(
        default=ZScoreLimits(), description="limits of columns that are scaled by z_score"
    )
    kinds: dict[str, Literal["z_score", "min_max", "gaussian", "none"]] = Field(
        default_factory=dict,
        examples=[{"trip_*": "z_score"}],
        description="column or glob -> how it is scaled, where Transform's output does not say it",
    )
    ignore: tuple[str, ...] = Field(
        default=(),
        examples=[["fare"]],
        description="columns or globs that are reported but not checked",
    )

    @classmethod
    def of(cls, limits: NormalizationLimits | Mapping[str, Any] | None) -> NormalizationLimits:
        """Return limits from a model, a mapping or None, without fields that a subclass adds."""
        if isinstance(limits, NormalizationLimits):
            limits = limits.model_dump(include=set(NormalizationLimits.model_fields))
        return cls.model_validate(limits or {})

    def kind_of(self, column: str) -> str | None:
        """Return the kind that `kinds` gives a column, or None."""
        return next((kind for glob, kind in self.kinds.items() if _matches(column, glob)), None)

    def ignores(self, column: str) -> bool:
        """Whether a column is reported but not checked."""
        return any(_matches(column, glob) for glob in self.ignore)

    def check_splits(self, splits: Sequence[str]) -> None:
        """Raise ValueError if the examples do not have the train split."""
        if TRAIN_SPLIT not in splits:
            raise ValueError(
                f"The transformed examples have no split {TRAIN_SPLIT!r}, which Transform "
                f"analyses; they have {', '.join(map(repr, sorted(splits)))}."
            )

    def check_names(self, columns: Sequence[str]) -> None:
        """Raise ValueError for a name or glob in `kinds` or `ignore` that matches no column."""
        for field, globs in (("kinds", self.kinds), ("ignore", self.ignore)):
            for glob in globs:
                if any(_matches(column, glob) for column in columns):
                    continue
                near = difflib.get_close_matches(glob, columns, n=3, cutoff=0.4) or columns[:3]
                raise ValueError(
                    f"{SECTION}.{field}: {glob!r} matches no column of the transformed examples; "
                    f"they have {len(columns)}, for example {', '.join(map(repr, near))}."
                )


def _matches(column: str, glob: str) -> bool:
    # A vector's column is named name[3], which as a glob would mean something else.
    return column == glob or fnmatch.fnmatchcase(column, glob)
