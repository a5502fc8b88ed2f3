"""Names and positions of the columns in `packed_float` and `packed_int`, of a transform graph."""

from transform import PACKED_FLOAT, Column, FeatureLayout

print(PACKED_FLOAT)  # packed_float
# layout = FeatureLayout.from_transform_graph(uri); layout.names(PACKED_FLOAT)
