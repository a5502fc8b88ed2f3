"""Your own node: a TFX component that counts rows, for the YAML's `nodes:` (docs/own-nodes.md)."""

# pyright: reportInvalidTypeArguments=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportOperatorIssue=false
# The decorator reads these annotations; the function gets artifacts and numbers.

import pyarrow as pa
import pyarrow.parquet as pq
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.standard_artifacts import Examples, Integer


@component
def RowCounter(
    examples: InputArtifact[Examples],
    rows: OutputArtifact[Integer],
    at_least: Parameter[int] = 1,
):
    """Count the rows of all splits.

    Args:
        examples: The rows.
        rows: Their number.
        at_least: Fewer rows are an error, so no later node runs.
    """
    rows.value = 0
    for split in artifact_utils.decode_split_names(examples.split_names):
        for file in fileio.glob(f"{examples.uri}/Split-{split}/*.parquet"):
            with fileio.open(file, "rb") as stream:
                rows.value += pq.read_metadata(pa.BufferReader(stream.read())).num_rows
    if rows.value < at_least:
        raise ValueError(f"{rows.value} rows, and at_least is {at_least}. Add rows.")
