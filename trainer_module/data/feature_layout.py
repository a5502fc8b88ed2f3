"""Read Transform's description of its packed outputs: a name for every position."""

from shared_core.feature_layout import Column, FeatureLayout, LayoutLabel, read_schema

__all__ = ["Column", "FeatureLayout", "LayoutLabel", "read_schema"]
