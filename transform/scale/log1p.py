"""scale: log1p. sign(x) log(1 + |x|), see pointwise.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transform.scale.pointwise import FUNCTIONS
from transform.scale.scaler import Scaler, ToScale, ValidationRule

if TYPE_CHECKING:
    import tensorflow as tf


def _apply(columns: ToScale) -> tf.Tensor:
    return FUNCTIONS["log1p"].apply(columns.x)


SCALER = Scaler(name="log1p", apply=_apply, validation_rule=ValidationRule("pointwise"))
