"""TFX's Transform, whose transformed examples are Parquet files."""

from tfx import v1 as tfx

from components import ArrowExampleGen, ParquetTransform

example_gen = ArrowExampleGen(input_base="data/trips")
schema_gen = tfx.components.ImportSchemaGen(schema_file="schema.pbtxt")
transform = ParquetTransform(
    examples=example_gen.outputs["examples"],
    schema=schema_gen.outputs["schema"],
    preprocessing_fn="my_package.preprocessing_fn",
)
