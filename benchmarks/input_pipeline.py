"""Rows per second from Transform's files into optimizer steps, against reading them alone.

The taxi example's transformed rows (15 floats and 7 ids, gzip, as TFX writes them), 30 times over,
in one file as a local run leaves it and in eight as several Beam workers do; read, shuffled through
the default buffer of 65,536 rows and parsed in the trainer's own way. The model is the default one
of `run_fn`, which is small: it should not make the reader wait, nor wait for it.

"Reading alone" is the same dataset with nobody training on it. "TFX's dataset factory" is what
TFX's own examples read with (`tf_dataset_factory` of the `DataAccessor`, shuffled through the same
number of rows), alone as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tfx_bsl.public import tfxio

from benchmarks import _report
from benchmarks._measure import Contender, seconds_per_run
from benchmarks._result import Limit, Row
from benchmarks._taxi import repeated, taxi, transformed
from trainer_module import TrainerConfig, TrainStep
from trainer_module.data_context import TransformedData, model_context
from trainer_module.default_model import default_model
from trainer_module.input_pipeline import DataSummary, summarise

STEPS_PER_LOOP = 1000
BUFFER_ROWS = TrainerConfig().shuffle_buffer_rows
BATCHES = (256, 1024)
TIMES = 30


def main() -> None:
    """Reads with and without steps, in turns."""
    arguments = _report.parser(__file__, rounds=9).parse_args()
    rounds = 1 if arguments.quick else arguments.runs
    times = 1 if arguments.quick else TIMES
    source = taxi()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for files in (1, 8):
            named = "1 file" if files == 1 else f"{files} files"
            paths = repeated(source.train, times=times, files=files, folder=Path(folder) / named)
            data = transformed(source, paths)
            summary = summarise(data.train)
            for batch in BATCHES:
                contenders = {
                    "ours": passes(training(data, summary, batch)),
                    "alone": passes(lambda data=data, batch=batch: count(read(data, batch))),
                    "tfx": passes(lambda data=data, batch=batch: count(tfx_reads(data, batch))),
                }
                seconds = seconds_per_run(contenders, rounds=rounds, seconds_per_turn=0.0)
                rate = {name: [summary.rows / s for s in found] for name, found in seconds.items()}
                what = f"{named}, batches of {batch:,} rows"
                rows += [
                    Row(
                        what=f"training: {what}",
                        baseline_name="reading alone",
                        ours=rate["ours"],
                        baseline=rate["alone"],
                        unit="rows/s",
                        limit=Limit(0.9, least=True),
                    ),
                    Row(
                        what=f"reading: {what}",
                        baseline_name="TFX's dataset factory",
                        ours=rate["alone"],
                        baseline=rate["tfx"],
                        unit="rows/s",
                    ),
                ]
    _report.publish(__file__, rows, quick=arguments.quick)


def passes(one_pass: Callable[[], object]) -> Contender:
    """A pass over all rows as a contender."""

    def run(times: int) -> None:
        for _ in range(times):
            one_pass()

    return Contender(run)


def read(data: TransformedData, batch_rows: int) -> tf.data.Dataset:
    """One epoch, as `run_fn` reads it."""
    epochs = data.train.shuffled_batches(batch_rows, shuffle_buffer_rows=BUFFER_ROWS, seed=0)
    return epochs(0)


def tfx_reads(data: TransformedData, batch_rows: int) -> tf.data.Dataset:
    """One epoch, as TFX's examples read it."""
    schema = data.transform_output.transformed_metadata.schema
    accessor = tfxio.TFExampleRecord(
        list(data.train.files), schema=schema, telemetry_descriptors=["benchmark"]
    )
    options = tfxio.TensorFlowDatasetOptions(
        batch_size=batch_rows,
        num_epochs=1,
        shuffle=True,
        shuffle_buffer_size=BUFFER_ROWS,
        label_key=data.train.label,
    )
    return accessor.TensorFlowDataset(options)


def count(dataset: tf.data.Dataset) -> int:
    """Takes every batch, inside the graph."""
    return int(
        dataset.reduce(
            tf.constant(0), lambda rows, *batch: rows + tf.shape(tf.nest.flatten(batch)[0])[0]
        )
    )


def training(data: TransformedData, summary: DataSummary, batch_rows: int) -> Callable[[], object]:
    """Returns a function that trains the default model on one epoch."""
    config = TrainerConfig(global_batch_size=batch_rows)
    keras.utils.set_random_seed(0)
    model: Any = default_model(model_context(config, data, summary))
    step = TrainStep(
        model,
        keras.optimizers.AdamW(1e-3),
        "binary_crossentropy",
        micro_batch_size=batch_rows,
    )

    def epoch() -> int:
        iterator = iter(read(data, batch_rows))
        rows = 0
        while True:
            report = step.run(iterator, STEPS_PER_LOOP)
            rows += report.rows
            if report.exhausted:
                assert rows == summary.rows
                return rows

    return epoch


if __name__ == "__main__":
    main()
