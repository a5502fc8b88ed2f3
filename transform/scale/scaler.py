"""What is known of a scaler: one record, made in the file of its name.

    SCALER = Scaler(name="min_max", learns="extremes", apply=..., explain=..., judged_as="min_max")

`table.py` names them all, and whoever asks something of a scaler asks its record. Its name under
`scale:` (or its options) is in `spec/scalers.py`.

Reading a record loads no TensorFlow: the functions that compute import it themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from transform.spec.common import ColumnType
from transform.spec.group import Group
from transform.spec.scalers import Pointwise

if TYPE_CHECKING:
    import tensorflow as tf

    from transform.analyzers.fitted_column import FittedColumn
    from transform.analyzers.order import OrderStatistics
    from transform.analyzers.power import Powers
    from transform.analyzers.statistics import FittedStatistics
    from transform.columns.inputs import DenseColumns


@dataclass(frozen=True)
class ToScale:
    """All columns of one scaler, side by side: it scales them at once.

    Attributes:
        names: Of the columns.
        groups: The group of each.
        x: Float64 `[batch, n]`, clipped and imputed: finite.
        given: Float64 `[batch, n]`, clipped by absolute bounds alone, NaN where missing.
        statistics: Of the clipped values, before imputation.
        order: The same, of a scaler that learns quartiles or quantiles; else None.
        quantiles: Float64 `[n, QUANTILE_GRID + 1]`, of a scaler that learns quantiles; else None.
        powers: The same, of a scaler that learns a power; else None.
        dense: The columns of all groups, keys among them.
    """

    names: tuple[str, ...]
    groups: tuple[Group, ...]
    x: tf.Tensor
    given: tf.Tensor
    statistics: FittedStatistics
    order: OrderStatistics | None
    quantiles: tf.Tensor | None
    powers: Powers | None
    dense: DenseColumns


def nothing_to_explain(group: Group, fitted: FittedColumn) -> dict[str, Any]:
    """Explains a scaler that learns nothing."""
    return {}


@dataclass(frozen=True)
class Scaler:
    """All that is known of one way to scale.

    Attributes:
        name: `Column.kind` of its columns; the word under `scale:` but for a scaler with options.
        learns: What is analyzed of its columns. One that learns gives 0 for a column that is
            constant in the analysis data, or has no value there, for unseen values too.
        apply: Scales all columns of this kind at once: float64 `[batch, n]`, finite.
        explain: The fitted numbers that it scales a column by, from (group, what was fitted).
        judged_as: The limits that NormalizationValidator holds its columns to.
        takes: Types of columns.
        first: The function whose values it scales, in a chain.
    """

    name: str
    learns: Literal["nothing", "extremes", "moments", "quartiles", "quantiles", "power"]
    apply: Callable[[ToScale], tf.Tensor]
    explain: Callable[[Group, FittedColumn], dict[str, Any]] = nothing_to_explain
    judged_as: Literal["z_score", "z_score_by_key", "min_max", "gaussian", "pointwise"] | None = (
        None
    )
    takes: tuple[ColumnType, ...] = ("float", "int")
    first: Pointwise | None = None


def unless_constant(
    explain: Callable[[FittedColumn], dict[str, Any]],
) -> Callable[[Group, FittedColumn], dict[str, Any]]:
    """Explains what a column without two different values becomes, and `explain` the others."""

    def explained(group: Group, fitted: FittedColumn) -> dict[str, Any]:
        assert fitted.statistics is not None
        if fitted.statistics.count == 0:
            return {"note": "no value was there to fit: 0 everywhere"}
        if fitted.statistics.minimum == fitted.statistics.maximum:
            return {"note": f"constant ({fitted.statistics.minimum:g}): 0 everywhere"}
        return explain(fitted)

    return explained
