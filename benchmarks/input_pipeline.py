"""Rows per second from Transform's files into optimizer steps, against reading them alone.

The taxi example's transformed rows (15 floats and 7 ids), 50 times over, in one file as a local run
leaves it and in eight as several Beam workers do: Parquet, as our Transform writes them, and for
the two that read nothing else gzipped tf.Examples, as TFX's Transform does. They are read, shuffled
through the default buffer of 65,536 rows and parsed in the trainer's own way, by `run_fn`'s default
batch and by a large one. The models are `run_fn`'s default (embeddings of 18 numbers, layers of 64
and 32 units) and a small one (embeddings of 4, one layer of 16), both with AdamW.

"tf.data alone" is what tf.data offers for this, with nobody training on it: `TFRecordDataset`,
`shuffle`, `batch`, `parse_example` on whole batches by as many threads as there are cores and
`prefetch`; from several files `interleave` takes blocks of 128 rows. 0.9 of its pace is wanted of
the small model.

"Ours alone" is the trainer's own dataset with nobody training on it. It parses before it shuffles,
and draws thousands of rows at a time, which is faster, so that the same steps are a larger part of
the time. The small model's row says what they have to share: the processor time of reading a row,
that of its part of a step (taken on rows in memory), what the machine's cores have at the pace of
reading alone, and what pace the same model reaches with the least that a training can do: a
`tf.function` written by hand, without weights or a check of anything.

"TFX's dataset factory" is what TFX's own examples read with (`tf_dataset_factory` of the
`DataAccessor`, shuffled through the same number of rows), alone as well, in the default batches.
"""

from __future__ import annotations

import operator
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tfx_bsl.public import tfxio

from benchmarks import _report
from benchmarks._measure import Contender, seconds_per_run
from benchmarks._models import flat
from benchmarks._result import Limit, Row
from benchmarks._taxi import as_tf_examples, repeated, taxi, transformed
from trainer_module import TrainerConfig, TrainStep
from trainer_module.data.input_pipeline import DataSummary, summarise
from trainer_module.model.data_context import TransformedData, model_context
from trainer_module.model.default_model import default_model
from trainer_module.options.task_options import ModelConfig

STEPS_PER_LOOP = 1000
BUFFER_ROWS = TrainerConfig().shuffle_buffer_rows
BATCHES = (TrainerConfig().batch_sizes.largest, 4096)
TIMES = 50
STEPS_TO_COMPARE = 10
WANTED = Limit(0.9, least=True)
BLOCK_ROWS = 128
SMALL = "small model"
MODELS = {
    SMALL: ModelConfig(hidden_units=(16,), embedding_size=4),
    "default model": ModelConfig(),
}


def main() -> None:
    """Reads with and without steps, in turns."""
    parser = _report.parser(__file__, rounds=9)
    parser.add_argument("--files", type=int, nargs="+", default=(1, 8), help="default: 1 8")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.runs
    times = 1 if arguments.quick else TIMES
    source = taxi()
    with tempfile.TemporaryDirectory() as folder:
        for files in arguments.files:
            named = "1 file" if files == 1 else f"{files} files"
            place = Path(folder) / named
            records = as_tf_examples(source, place / "once")
            paths, tf_examples = (
                repeated(pattern, times=times, files=files, folder=place)
                for pattern in (source.train, records)
            )
            for batch in BATCHES:
                what = f"{named}, batches of {batch:,} rows"
                data, usual = transformed(source, paths), transformed(source, tf_examples)
                rows = against_reading(what, data, usual, batch, rounds=rounds)
                if batch == BATCHES[0]:
                    rows.append(against_tfx(what, data, usual, batch, rounds=min(rounds, 3)))
                _report.publish(__file__, rows, quick=arguments.quick)


def against_reading(
    what: str, data: TransformedData, tf_examples: TransformedData, batch: int, *, rounds: int
) -> list[Row]:
    """Training against reading alone, tf.data's way and ours, with the processor time of both."""
    summary = summarise(data.train)
    ours, usual = read(data, batch), plain(tf_examples, batch)
    in_memory = ours.cache()
    steps = {name: make_step(data, summary, batch, model) for name, model in MODELS.items()}
    passes: dict[str, Callable[[], object]] = {
        "tf.data": lambda: count(usual),
        "reading": lambda: count(ours),
        "in memory": epoch(steps[SMALL], in_memory, summary.rows),
    }
    by_hand = hand(data, summary, batch)
    check_same_work(steps[SMALL], by_hand, ours)
    passes["by hand"] = lambda: by_hand.epoch(iter(ours))
    for name, step in steps.items():
        passes[name] = epoch(step, ours, summary.rows)
    meters = {name: Meter(one_pass) for name, one_pass in passes.items()}
    rate = rows_per_second(
        {name: Contender(meter.run) for name, meter in meters.items()}, summary, rounds
    )
    reading, training = (
        meters[name].processor_seconds() / summary.rows for name in ("reading", "in memory")
    )
    available = (os.cpu_count() or 1) / statistics.median(rate["reading"])
    share = statistics.median(map(operator.truediv, rate["by hand"], rate["reading"]))
    detail = (
        f"of which a loop by hand reaches {share:.2f}; µs of a processor per row: "
        f"{reading * 1e6:.1f} reading, {training * 1e6:.1f} training, "
        f"{available * 1e6:.1f} there are at its pace"
    )
    baselines = {"tf.data": "tf.data alone", "reading": "ours alone"}
    return [
        Row(
            what=f"{name}: {what}",
            baseline_name=baseline_name,
            ours=rate[name],
            baseline=rate[baseline],
            unit="rows/s",
            limit=WANTED if (name, baseline) == (SMALL, "tf.data") else None,
            detail=detail if (name, baseline) == (SMALL, "reading") else "",
        )
        for name in MODELS
        for baseline, baseline_name in baselines.items()
    ]


def against_tfx(
    what: str, data: TransformedData, tf_examples: TransformedData, batch: int, *, rounds: int
) -> Row:
    """Reading in the trainer's way, against TFX's."""
    summary = summarise(data.train)
    ours, theirs = read(data, batch), tfx_reads(tf_examples, batch)
    contenders = {
        "ours": Contender(Meter(lambda: count(ours)).run),
        "TFX": Contender(Meter(lambda: count(theirs)).run),
    }
    rate = rows_per_second(contenders, summary, rounds)
    return Row(
        what=f"reading: {what}",
        baseline_name="TFX's dataset factory",
        ours=rate["ours"],
        baseline=rate["TFX"],
        unit="rows/s",
    )


class ByHand(NamedTuple):
    """A model and what trains it, a step on each batch of an iterator."""

    model: keras.Model
    epoch: Callable[[Any], object]


def hand(data: TransformedData, summary: DataSummary, batch_rows: int) -> ByHand:
    """The small model's steps with nothing around them."""
    model = make_model(data, summary, batch_rows, MODELS[SMALL])
    optimizer = keras.optimizers.AdamW(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train(iterator: Any) -> None:
        for features, labels in iterator:
            with tf.GradientTape() as tape:
                outputs = model(features, training=True)
                loss = tf.reduce_mean(keras.losses.binary_crossentropy(labels, outputs))
            gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
            # As they are, Keras' Adam squares each of an id's slices for itself, not their sum.
            tables = [tf.convert_to_tensor(gradient) for gradient in gradients]
            optimizer.apply(tables, model.trainable_variables)

    return ByHand(model, train)


def check_same_work(step: TrainStep, by_hand: ByHand, batches: tf.data.Dataset) -> None:
    """Takes the same steps with both: they must move the weights alike, or the race is not one."""
    start = flat(step.model)
    step.run(iter(batches.take(STEPS_TO_COMPARE)), STEPS_TO_COMPARE)
    by_hand.epoch(iter(batches.take(STEPS_TO_COMPARE)))
    moved, expected = flat(step.model) - start, flat(by_hand.model) - start
    error = float(np.linalg.norm(moved - expected) / np.linalg.norm(expected))
    if error > 0.02:
        raise SystemExit(f"ours moved the weights {error:.1%} differently from the loop by hand")


def rows_per_second(
    contenders: dict[str, Contender], summary: DataSummary, rounds: int
) -> dict[str, list[float]]:
    """Takes one pass a turn."""
    seconds = seconds_per_run(contenders, rounds=rounds, seconds_per_turn=0.0)
    return {name: [summary.rows / s for s in found] for name, found in seconds.items()}


class Meter:
    """Runs passes and keeps the processor time of each."""

    def __init__(self, one_pass: Callable[[], object]) -> None:
        """Takes what to run."""
        self._one_pass = one_pass
        self._seconds: list[float] = []

    def run(self, times: int) -> None:
        """Takes so many passes."""
        for _ in range(times):
            started = time.process_time()
            self._one_pass()
            self._seconds.append(time.process_time() - started)

    def processor_seconds(self) -> float:
        """The median, without the first pass, which traces."""
        return statistics.median(self._seconds[1:])


def read(data: TransformedData, batch_rows: int) -> tf.data.Dataset:
    """One epoch, as `run_fn` reads it."""
    rows = summarise(data.train).rows
    return data.train.shuffled_batches(
        batch_rows, shuffle_buffer_rows=BUFFER_ROWS, seed=0, rows=rows
    )(0)


def plain(data: TransformedData, batch_rows: int) -> tf.data.Dataset:
    """One epoch with what tf.data offers, on the same options as ours."""
    examples, ours = data.train, read(data, batch_rows)
    if len(examples.files) == 1:
        records = tf.data.TFRecordDataset(list(examples.files), "GZIP", buffer_size=8 << 20)
    else:
        records = (
            tf.data.Dataset.from_tensor_slices(list(examples.files))
            .interleave(
                lambda file: tf.data.TFRecordDataset(file, "GZIP", buffer_size=8 << 20).batch(
                    BLOCK_ROWS
                ),
                cycle_length=len(examples.files),
                num_parallel_calls=len(examples.files),
            )
            .unbatch()
        )

    def parse(serialized: tf.Tensor) -> tuple[Any, Any]:
        features = tf.io.parse_example(serialized, examples.feature_spec)
        return features, features.pop(examples.label)

    return (
        records.shuffle(BUFFER_ROWS, seed=0)
        .batch(batch_rows)
        .map(parse, num_parallel_calls=os.cpu_count())
        .prefetch(2)
        .with_options(ours.options())
    )


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


def make_model(
    data: TransformedData, summary: DataSummary, batch_rows: int, layers: ModelConfig
) -> Any:
    """Returns the default model of that size, with the same weights each time."""
    config = TrainerConfig(global_batch_size=batch_rows, model=layers)
    keras.utils.set_random_seed(0)
    return default_model(model_context(config, data, summary))


def make_step(
    data: TransformedData, summary: DataSummary, batch_rows: int, layers: ModelConfig
) -> TrainStep:
    """Returns steps of one micro-batch, as `run_fn` makes them by default."""
    return TrainStep(
        make_model(data, summary, batch_rows, layers),
        keras.optimizers.AdamW(1e-3),
        "binary_crossentropy",
        micro_batch_size=batch_rows,
        expected_rows=batch_rows,
    )


def epoch(step: TrainStep, batches: tf.data.Dataset, rows: int) -> Callable[[], object]:
    """Returns a function that trains on one epoch."""

    def one_pass() -> None:
        iterator = iter(batches)
        seen = 0
        while True:
            report = step.run(iterator, STEPS_PER_LOOP)
            seen += report.rows
            if report.exhausted:
                assert seen == rows
                return

    return one_pass


if __name__ == "__main__":
    main()
