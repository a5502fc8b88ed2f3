"""`check_spec` needs a schema and no data. The others read a transform graph."""

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from transform import FeatureSpec, check_spec

schema = text_format.Parse('feature {name: "fare" type: FLOAT}', schema_pb2.Schema())
spec = {"groups": [{"name": "money", "columns": ["fair"], "scale": "z_score"}]}
try:
    check_spec(FeatureSpec.model_validate(spec), schema)
except ValueError as error:
    print(error)  # group 'money': column 'fair' is not in the data; did you mean 'fare'?
