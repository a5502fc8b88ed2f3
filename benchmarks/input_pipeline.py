"""Rows per second from Transform's files into optimizer steps, against reading them alone.

The taxi example's transformed rows (15 floats and 7 ids, gzip, as TFX writes them), 20 times over,
in one file as a local run leaves it and in eight as several Beam workers do; read, shuffled through
the default buffer of 65,536 rows and parsed in the trainer's own way, by `run_fn`'s default batch
and by a large one. The models are `run_fn`'s default (embeddings of 18 numbers, layers of
64 and 32 units) and a small one (embeddings of 4, one layer of 16), both with AdamW.

"Reading alone" is the same dataset with nobody training on it. "TFX's dataset factory" is what
TFX's own examples read with (`tf_dataset_factory` of the `DataAccessor`, shuffled through the same
number of rows), alone as well.
"""

from __future__ import annotations

import os
import tempfile
import time
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
from trainer_module.config import ModelConfig
from trainer_module.data_context import TransformedData, model_context
from trainer_module.default_model import default_model
from trainer_module.input_pipeline import DataSummary, summarise

STEPS_PER_LOOP = 1000
BUFFER_ROWS = TrainerConfig().shuffle_buffer_rows
BATCHES = (TrainerConfig().global_batch_size, 4096)
TIMES = 20
MODELS = {
    "small model": ModelConfig(hidden_units=(16,), embedding_size=4),
    "default model": ModelConfig(),
}


def main() -> None:
    """Reads with and without steps, in turns."""
    arguments = _report.parser(__file__, rounds=7).parse_args()
    rounds = 1 if arguments.quick else arguments.runs
    times = 1 if arguments.quick else TIMES
    source = taxi()
    rows: list[Row] = []
    busy: dict[str, list[float]] = {"reading alone": [], **{name: [] for name in MODELS}}
    with tempfile.TemporaryDirectory() as folder:
        for files in (1, 8):
            named = "1 file" if files == 1 else f"{files} files"
            paths = repeated(source.train, times=times, files=files, folder=Path(folder) / named)
            data = transformed(source, paths)
            summary = summarise(data.train)
            for batch in BATCHES:
                passes: dict[str, Callable[[], object]] = {
                    "reading alone": lambda data=data, batch=batch: count(read(data, batch)),
                    "TFX": lambda data=data, batch=batch: count(tfx_reads(data, batch)),
                    **{
                        name: training(data, summary, batch, model)
                        for name, model in MODELS.items()
                    },
                }
                seconds = seconds_per_run(
                    {name: Contender(repeat(one_pass)) for name, one_pass in passes.items()},
                    rounds=rounds,
                    seconds_per_turn=0.0,
                )
                for name in busy:
                    busy[name].append(busy_cores(passes[name]))
                rate = {name: [summary.rows / s for s in found] for name, found in seconds.items()}
                what = f"{named}, batches of {batch:,} rows"
                rows += [
                    Row(
                        what=f"{name}: {what}",
                        baseline_name="reading alone",
                        ours=rate[name],
                        baseline=rate["reading alone"],
                        unit="rows/s",
                        limit=Limit(0.9, least=True),
                    )
                    for name in MODELS
                ]
                rows.append(
                    Row(
                        what=f"reading: {what}",
                        baseline_name="TFX's dataset factory",
                        ours=rate["reading alone"],
                        baseline=rate["TFX"],
                        unit="rows/s",
                    )
                )
    shown = "; ".join(f"{name} {min(c):.2f} to {max(c):.2f}" for name, c in busy.items())
    note = f"Processor seconds per second, of {os.cpu_count()} cores: {shown}."
    _report.publish(__file__, rows, quick=arguments.quick, notes={"cores": note})


def repeat(one_pass: Callable[[], object]) -> Callable[[int], None]:
    """A pass over all rows, so many times."""

    def run(times: int) -> None:
        for _ in range(times):
            one_pass()

    return run


def busy_cores(one_pass: Callable[[], object]) -> float:
    """Returns how many cores a pass keeps busy: where it is all of them, none is left to give."""
    wall, processor = time.perf_counter(), time.process_time()
    one_pass()
    return (time.process_time() - processor) / (time.perf_counter() - wall)


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


def training(
    data: TransformedData, summary: DataSummary, batch_rows: int, layers: ModelConfig
) -> Callable[[], object]:
    """Returns a function that trains on one epoch."""
    config = TrainerConfig(global_batch_size=batch_rows, model=layers)
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
