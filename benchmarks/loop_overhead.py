"""What checkpoints, metrics and TensorBoard cost at default settings, against the bare loop.

The taxi example's transformed rows, 3 epochs of the default model in global batches of 256 rows
through `TrainingLoop`, set up as `run_fn` does: an evaluation at the end of each epoch, AUC and
accuracy beside the loss, checkpoints (at ends of epochs where one is due, and of training), the
log, TensorBoard's scalars after each half second's steps. The baseline has none of these but still
evaluates the loss, since whoever gives an eval split wants to know it. What the evaluation itself
takes is shown against a loop without any.

Epochs are those of the example's own 10,000 rows, over in a fraction of a second, so that what is
done once an epoch weighs much, and of 200,000 rows, the same 20 times over. Several processes, one
after another, measure both: in one process a contender may be faster than its twin.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

import keras

from benchmarks import _report
from benchmarks._measure import Contender, rounds_of_processes, seconds_per_run
from benchmarks._result import Limit, Row
from benchmarks._taxi import Taxi, repeated, taxi, transformed
from trainer_module import (
    Checkpoints,
    Evaluation,
    ProgressLog,
    TensorBoardScalars,
    TrainerConfig,
    TrainingLoop,
    TrainStep,
)
from trainer_module.config import DEFAULT_METRICS
from trainer_module.data.input_pipeline import DataSummary, summarise
from trainer_module.losses.weighted_loss import weighted_loss
from trainer_module.model.data_context import TransformedData, model_context
from trainer_module.model.default_model import default_model
from trainer_module.model.metrics import create_metric
from trainer_module.model.optimizers import create_optimizer

CONFIG = TrainerConfig()
EPOCHS = 3
TIMES = 20


def main() -> None:
    """Compares training with everything, with the evaluation's loss only, and with nothing."""
    arguments = _report.parser(__file__, rounds=7, processes=3).parse_args()
    processes, rounds = (1, 1) if arguments.quick else (arguments.processes, arguments.runs)
    source = taxi()
    rows: list[Row] = []
    notes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for times in (1,) if arguments.quick else (TIMES, 1):
            place = Path(folder) / f"times-{times}"
            files, eval_files = (
                repeated(pattern, times=times, files=1, folder=place / split)
                for split, pattern in (("train", source.train), ("eval", source.eval))
            )
            count = summarise(transformed(source, files).train).rows
            seconds = rounds_of_processes(
                processes, race, source, files, eval_files, place, rounds=rounds
            )
            what = f"{EPOCHS} epochs of {count:,} rows"
            rows += [
                Row(
                    what=f"checkpoints, metrics, TensorBoard: {what}",
                    baseline_name="the loss evaluated",
                    ours=seconds["all"],
                    baseline=seconds["loss"],
                    limit=Limit(1.05),
                ),
                Row(
                    what=f"evaluation: {what}",
                    baseline_name="no evaluation",
                    ours=seconds["loss"],
                    baseline=seconds["bare"],
                ),
            ]
            extra = [a - b for a, b in zip(seconds["all"], seconds["loss"], strict=True)]
            per_epoch = 1e3 * statistics.median(extra) / EPOCHS
            took = f"{per_epoch:.0f} ms" if per_epoch >= 1 else "less than 1 ms"
            notes[what] = (
                f"With {count:,} rows, checkpoint, metrics and TensorBoard took {took} per epoch."
            )
    _report.publish(__file__, rows, quick=arguments.quick, notes=notes)


def race(
    source: Taxi,
    files: tuple[str, ...],
    eval_files: tuple[str, ...],
    place: Path,
    *,
    rounds: int,
) -> dict[str, list[float]]:
    """Returns seconds of a `fit`: bare, with the loss evaluated, and with all, in turns."""
    data = transformed(source, files, eval_files)
    summary = summarise(data.train)
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        contenders = {
            "bare": contender(data, summary, folder / "bare", evaluated=False, kept=False),
            "loss": contender(data, summary, folder / "loss", evaluated=True, kept=False),
            "all": contender(data, summary, folder / "all", evaluated=True, kept=True),
        }
        return seconds_per_run(contenders, rounds=rounds)


def contender(
    data: TransformedData, summary: DataSummary, folder: Path, *, evaluated: bool, kept: bool
) -> Contender:
    """Trains one model repeatedly; each run is a separate `fit` with separate folders."""
    keras.utils.set_random_seed(CONFIG.seed)
    model: Any = default_model(model_context(CONFIG, data, summary))
    loss = weighted_loss("binary_crossentropy")
    step = TrainStep(
        model,
        create_optimizer(CONFIG.optimizer, EPOCHS),
        loss,
        micro_batch_size=CONFIG.batch_sizes.largest,
        expected_rows=CONFIG.batch_sizes.largest,
    )
    names = DEFAULT_METRICS["binary"] if kept else ()
    evaluation = Evaluation(
        model,
        loss,
        dataclasses.replace(data.train, files=data.eval_files).batches(CONFIG.batch_sizes.largest),
        metrics=[create_metric(name, "binary") for name in names],
    )
    number = itertools.count()

    def fit() -> None:
        own = folder / str(next(number))
        TrainingLoop(
            step,
            data.train.shuffled_batches(
                CONFIG.batch_sizes.largest,
                shuffle_buffer_rows=min(CONFIG.shuffle_buffer_rows, summary.rows),
                seed=CONFIG.seed,
                rows=summary.rows,
            ),
            epochs=EPOCHS,
            steps_per_epoch=-(-summary.rows // CONFIG.batch_sizes.largest),
            evaluate=evaluation if evaluated else None,
            callbacks=[ProgressLog(), TensorBoardScalars(str(own))] if kept else [],
            checkpoints=Checkpoints(str(own / "checkpoints"), step) if kept else None,
            progress=kept,
        ).fit()

    def run(times: int) -> None:
        for _ in range(times):
            fit()

    return Contender(run)


if __name__ == "__main__":
    main()
