"""Feature specification -> `preprocessing_fn`: vectorised, NaN-safe normalisation on Beam.

    tfx.components.Transform(
        examples=..., schema=...,
        preprocessing_fn="transform.preprocessing_fn",
        custom_config={"features": FeatureSpec(...).model_dump(mode="json")},
    )

`import transform` needs pydantic only; TensorFlow is imported by the first use of
`transform.preprocessing_fn` (or `dense_numbers`, `dense_texts`, `column_chains`), so that a
configuration is parsed and refused in no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from transform.layout import (
    PACKED_FLOAT,
    PACKED_INT,
    PACKED_MISSING,
    Column,
    FeatureLayout,
    LayoutLabel,
)
from transform.spec.cross import Cross
from transform.spec.encoders import (
    Bucketize,
    Date,
    Encode,
    Hash,
    Integer,
    MultiHot,
    OneHot,
    Vocabulary,
)
from transform.spec.features import FeatureSpec, Label
from transform.spec.group import Group
from transform.spec.scalers import Clip, Constant, ScaleByKey, ZScoreByKey

if TYPE_CHECKING:
    from transform.columns.inputs import dense_numbers, dense_texts
    from transform.output.cautions import column_cautions
    from transform.output.chains import column_chains
    from transform.preprocessing import preprocessing_fn
    from transform.resolve.against_schema import check_spec

_LAZY = {
    "column_cautions": "transform.output.cautions",
    "column_chains": "transform.output.chains",
    "check_spec": "transform.resolve.against_schema",
    "preprocessing_fn": "transform.preprocessing",
    "dense_numbers": "transform.columns.inputs",
    "dense_texts": "transform.columns.inputs",
}

__all__ = [
    "PACKED_FLOAT",
    "PACKED_INT",
    "PACKED_MISSING",
    "Bucketize",
    "Clip",
    "Column",
    "Constant",
    "Cross",
    "Date",
    "Encode",
    "FeatureLayout",
    "FeatureSpec",
    "Group",
    "Hash",
    "Integer",
    "Label",
    "LayoutLabel",
    "MultiHot",
    "OneHot",
    "ScaleByKey",
    "Vocabulary",
    "ZScoreByKey",
    "check_spec",
    "column_cautions",
    "column_chains",
    "dense_numbers",
    "dense_texts",
    "preprocessing_fn",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(importlib.import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "transform":
                raise
            raise ModuleNotFoundError(
                f"transform.{name} needs {error.name}, which is not installed: "
                "pip install 'tfx-largebatch[tfx]'",
                name=error.name,
            ) from error
    raise AttributeError(f"module 'transform' has no attribute {name!r}")
