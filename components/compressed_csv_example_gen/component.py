"""The CompressedCsvExampleGen node."""

from __future__ import annotations

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec

from components.compressed_csv_example_gen.executor import Executor


class CompressedCsvExampleGen(FileBasedExampleGen):
    """TFX's CsvExampleGen for files that Beam decompresses by their names (`rows.csv.gz`).

    Outputs:
        examples: Examples, as CsvExampleGen writes them.
    """

    EXECUTOR_SPEC = BeamExecutorSpec(Executor)
