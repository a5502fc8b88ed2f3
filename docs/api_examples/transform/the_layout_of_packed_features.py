"""Names and positions of the columns in `packed_float` and `packed_int`, of a transform graph."""

from transform import PACKED_FLOAT, FeatureLayout


def float_columns(transform_graph_uri):
    return FeatureLayout.from_transform_graph(transform_graph_uri).names(PACKED_FLOAT)
