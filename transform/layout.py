"""The public names of the layout, for the package's list of them."""

from shared_core.feature_layout import (
    PACKED_FLOAT,
    PACKED_INT,
    PACKED_MISSING,
    Column,
    FeatureLayout,
    LayoutLabel,
)

__all__ = [
    "PACKED_FLOAT",
    "PACKED_INT",
    "PACKED_MISSING",
    "Column",
    "FeatureLayout",
    "LayoutLabel",
]
