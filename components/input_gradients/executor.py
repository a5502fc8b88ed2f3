"""Sample rows on Beam, attribute their predictions, and summarise the attributions."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from absl import logging
from apache_beam.pvalue import AsSingleton
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types.artifact import Artifact
from tfx.utils import path_utils

from components.input_gradients.model import load_model
from components.input_gradients.rows import MOST_BASELINES, RowOptions, WriteAttributions
from components.input_gradients.sample import (
    ReadRows,
    SampleRows,
    check_split,
    split_into_groups,
)
from components.input_gradients.summary import (
    ROWS_FOLDER,
    SUMMARY_JSON,
    AttributionSummary,
    summarize,
)
from shared_core.atomic_files import atomic_write_text
from trainer_module.common.progress import RowsCounted, attached

EXAMPLES_KEY = "examples"
MODEL_KEY = "model"
BASELINE_KEY = "baseline"
ROWS_KEY = "rows"
STEPS_KEY = "steps"
SPLIT_KEY = "split"
SLICES_KEY = "slices"
TRANSFORMED_KEY = "transformed"
BATCH_ROWS_KEY = "batch_rows"
ATTRIBUTIONS_KEY = "attributions"

_NODE = "InputGradients"
# Share of the mean change that attributions may miss before there is a warning.
_GAP = 0.01


class Executor(BaseBeamExecutor):
    """Reads examples and a model, writes attributions."""

    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Sample rows, write the Parquet files and the summary.

        Raises:
            ValueError: The model has not the signature, or the split does not exist.
            Exception: Of Beam, with the message of a ValueError: the split is empty, rows do not
                fit the model, or a slice is not among their columns.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
        model = artifact_utils.get_single_instance(input_dict[MODEL_KEY])
        output = artifact_utils.get_single_instance(output_dict[ATTRIBUTIONS_KEY])
        baseline = input_dict.get(BASELINE_KEY)
        split = exec_properties[SPLIT_KEY]
        options = RowOptions(
            model=path_utils.serving_model_path(model.uri, path_utils.is_old_model_artifact(model)),
            folder=os.path.join(output.uri, ROWS_FOLDER),
            what=f"split {split!r} of the examples under {examples.uri}",
            slices=tuple(json.loads(exec_properties[SLICES_KEY])),
            steps=exec_properties[STEPS_KEY],
            transformed=bool(exec_properties[TRANSFORMED_KEY]),
            batch_rows=exec_properties[BATCH_ROWS_KEY],
        )
        check_split(examples, split)
        try:
            # A missing signature is reported before rows are read.
            load_model(options.model, transformed=options.transformed)
            self._write_rows(
                examples,
                artifact_utils.get_single_instance(baseline) if baseline else None,
                options,
                split=split,
                rows=exec_properties[ROWS_KEY],
            )
        finally:
            load_model.cache_clear()
        summary = summarize(_tables(options.folder), split=split, steps=options.steps)
        atomic_write_text(os.path.join(output.uri, SUMMARY_JSON), summary.model_dump_json(indent=1))
        _log_end(summary)

    def _write_rows(
        self,
        examples: Artifact,
        baseline: Artifact | None,
        options: RowOptions,
        *,
        split: str,
        rows: int,
    ) -> None:
        with self._make_beam_pipeline() as pipeline:
            baselines = ()
            if baseline is not None:
                names = artifact_utils.decode_split_names(baseline.split_names)
                found = (
                    pipeline
                    | "ReadBaseline" >> ReadRows(baseline, names, _NODE)
                    | "SampleBaseline" >> SampleRows(MOST_BASELINES + 1)
                )
                baselines = (AsSingleton(found),)
            _ = (
                pipeline
                | "Read" >> ReadRows(examples, [split], _NODE)
                | "Sample" >> SampleRows(rows)
                | "Group" >> beam.FlatMap(split_into_groups, options.slices, options.what)
                | "Distribute" >> beam.Reshuffle()
                | "Write" >> beam.ParDo(WriteAttributions(options), *baselines)
            )


def _tables(folder: str) -> Iterator[pa.Table]:
    for path in sorted(fileio.glob(os.path.join(folder, "*.parquet"))):
        with fileio.open(path, "rb") as file:
            yield pq.read_table(io.BytesIO(file.read()))


def _log_end(summary: AttributionSummary) -> None:
    rows = summary.slices[0].rows
    error, change = summary.mean_absolute_completeness_error, summary.mean_absolute_change
    if error > _GAP * change:
        logging.warning(
            "%s: with steps=%d, a row's attributions miss %.2g of its change on average, where the "
            "mean change is %.2g. Use more steps, such as steps=%d.",
            _NODE,
            summary.steps,
            error,
            change,
            4 * summary.steps,
        )
    logging.get_absl_logger().info(
        "%s: %d rows of split %s; the strongest columns are %s",
        _NODE,
        rows,
        summary.split,
        ", ".join(name for name, _ in summary.strongest(10)),
        extra=attached(RowsCounted(_NODE, rows)),
    )
