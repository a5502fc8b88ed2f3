"""Do other hidden layers help? The kinds, low rank and sparsity of the default model, on tables.

Each option of `model:` is trained with `TrainStep` on public tables, beside the default (`mlp`) and
scikit-learn's HistGradientBoosting on the same rows: 8 knots, dropout 0.1, AdamW with a cosine
schedule from 0.003, windows of 64 rows (16 or 32 of small tables), the same number of steps for
all. Layers are of 64 and 32 units, from 2,000 training rows on 128 and 64, as `init` writes them.
There is no linear start, no average of the weights and no early stopping, which `init` has: the
comparison is among the options. Numbers are z-scores, their missing values are the mean with a 0/1
column, texts are ids; labels of a regression are z-scores. Tables are cut to 4,000 rows, of which a
fifth is put aside by each seed. A round is a seed, in the tables of scores.

Scores are AUC for two classes, accuracy for more, mean absolute error for numbers. The rank of an
option is among all on a table, by the mean score; equal ones share it. Weights are those that are
not 0. Times are those of one step and of one call of 256 rows in a graph, on the table that is
named, in turns.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as TensorFlow below: other work shares the cores

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

from benchmarks import _report
from benchmarks._measure import Contender, seconds_per_run
from benchmarks._other_models import features_of, predictions
from benchmarks._result import Row, Unit
from benchmarks._tables import TABLES, Table
from benchmarks.tables import score
from trainer_module import TrainerConfig, TrainStep
from trainer_module.loop.callbacks.prune import pruned_layers
from trainer_module.model.model_context import ModelContext
from trainer_module.model.plan import resolve

SEEDS = 5
STEPS = 300
MOST_ROWS = 4_000
MANY = 2_000  # training rows
SERVED_ROWS = 256
MLP, BOOSTING = "mlp", "HistGradientBoosting"
OPTIONS: dict[str, dict[str, Any]] = {
    MLP: {},
    "residual": {"kind": "residual"},
    "tabm": {"kind": "tabm"},
    "low_rank: 16": {"low_rank": 16},
    "sparsity: 0.8": {"sparsity": 0.8},
}
CHOSEN = (
    *("iris", "breast cancer", "mortgages", "boston", "cars", "titanic", "wages", "diamonds"),
    *("digits", "union members"),
)
TIMED = "mortgages"
UNITS: dict[str, Unit] = {"binary": "AUC", "multiclass": "accuracy", "regression": "MAE"}


class Split(NamedTuple):
    """Rows of a seed, as arrays by feature, and their labels as the model gets them.

    Attributes:
        train: Features of the training rows.
        aside: Features of the rows put aside.
        labels: Of the training rows, class numbers or z-scores `[rows, 1]`.
        frames: The training rows and those put aside, for the other model.
        truth: Labels of both, as they are in the table.
    """

    train: dict[str, np.ndarray]
    aside: dict[str, np.ndarray]
    labels: np.ndarray
    frames: tuple[pd.DataFrame, pd.DataFrame]
    truth: tuple[np.ndarray, np.ndarray]


class Trainer:
    """Trains an option on a table, from each seed; its functions are traced once."""

    def __init__(self, table: Table, settings: dict[str, Any], split: Split, steps: int) -> None:
        """Builds the model and the step."""
        self.table, self.steps = table, steps
        self.rows = len(split.labels)
        units = (128, 64) if self.rows >= MANY else (64, 32)
        rates = {"learning_rate": 0.003, "weight_decay": 0.01, "schedule": {"name": "cosine"}}
        model = {"hidden_units": units, "dropout": 0.1, "knots": 8, **settings}
        self.config = TrainerConfig.parse({"model": model, "optimizer": rates})
        spec, sizes = {}, {}
        for name, values in split.train.items():
            kind = tf.float32 if values.dtype == np.float32 else tf.int64
            spec[name] = tf.io.FixedLenFeature([values.shape[1]], kind)
            if kind == tf.int64:
                # Over all rows: the tables of all seeds have one size.
                sizes[name] = (0, 1 + max(int(values.max()), int(split.aside[name].max())))
        outputs = len(set(split.truth[0])) if table.kind == "multiclass" else 1
        self.context = ModelContext(
            spec,
            None,
            None,
            "y",
            table.kind,
            outputs,
            sizes,
            self.config,  # type: ignore[arg-type]
        )
        self.model, optimizer, loss = self._build()
        self.batch = int(np.clip(2 ** round(np.log2(self.rows / 40)), 16, 64))
        self.step = TrainStep(self.model, optimizer, loss, micro_batch_size=self.batch)
        self._variables = [*optimizer.variables, *self.step.state()]
        self._zeros = [np.zeros_like(v.numpy()) for v in self._variables]
        self.predict: Callable[..., Any] = tf.function(
            lambda rows: self.model(rows, training=False), reduce_retracing=True
        )

    def _build(self) -> tuple[keras.Model, Any, Any]:
        return resolve(self.config, label_kind=self.table.kind).build(self.context, self.steps)

    def train(self, split: Split, seed: int) -> np.ndarray:
        """Trains from new weights and returns the outputs for the rows put aside."""
        keras.utils.set_random_seed(seed)
        self.model.set_weights(self._build()[0].get_weights())
        for variable, value in zip(self._variables, self._zeros, strict=True):
            variable.assign(value)
        batches = tf.data.Dataset.from_tensor_slices((split.train, split.labels))
        batches = batches.shuffle(self.rows, seed=seed).repeat()
        iterator = iter(batches.batch(self.batch, drop_remainder=True))
        done, pruned = 0, pruned_layers(self.model)
        while done < self.steps:  # as the callback Prune does, without the rest of a loop
            due = [each.steps_until_due(done) for each in pruned]
            count = min([self.steps - done, *(steps for steps in due if steps)])
            self.step.run(iterator, count)
            done += count
            for each in pruned:
                each.prune(done)
        return self.predict(split.aside).numpy()

    def weights(self) -> int:
        """Returns the number of trained weights that are not removed."""
        removed = sum(int(np.sum(each.mask.numpy() == 0)) for each in pruned_layers(self.model))
        return sum(int(np.prod(v.shape)) for v in self.model.trainable_variables) - removed


def main() -> None:
    """Runs the tables one after another; what is measured is kept after each."""
    parser = _report.parser(__file__, rounds=SEEDS)
    parser.add_argument("--tables", default=",".join(CHOSEN), help="comma-separated: %(default)s")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each training: %(default)s")
    arguments = parser.parse_args()
    names = ["iris"] if arguments.quick else arguments.tables.split(",")
    if unknown := set(names) - set(TABLES):
        parser.error(f"--tables: there is no {', '.join(sorted(unknown))}")
    seeds = 1 if arguments.quick else arguments.runs
    steps = 20 if arguments.quick else arguments.steps
    tf.config.threading.set_intra_op_parallelism_threads(1)
    rows: list[Row] = []
    scores: dict[str, dict[str, list[float]]] = {}
    sizes: dict[str, int] = {}
    for name in names:
        started = time.perf_counter()
        trainers, splits = prepare(TABLES[name], seeds, steps)
        scores[name] = scores_of(TABLES[name], trainers, splits)
        sizes[name] = len(splits[0].labels)
        rows += score_rows(name, scores[name])
        if name == (TIMED if TIMED in names else names[0]):
            rows += cost_rows(name, trainers, splits[0], arguments.runs, quick=arguments.quick)
        notes = {**table_notes(scores), "ranks": ranks_note(scores, sizes), "load": load_note()}
        _report.publish(__file__, rows, quick=arguments.quick, notes=notes)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
        keras.backend.clear_session()


def prepare(table: Table, seeds: int, steps: int) -> tuple[dict[str, Trainer], list[Split]]:
    """Returns a trainer per option, and the rows of each seed."""
    splits = list(splits_of(table, seeds))
    return {
        name: Trainer(table, settings, splits[0], steps) for name, settings in OPTIONS.items()
    }, splits


def splits_of(table: Table, seeds: int) -> Iterator[Split]:
    """Returns the rows of each seed; ids and columns are those of the whole table."""
    from sklearn.model_selection import train_test_split

    whole = table.read()
    whole = whole[whole[table.label].notna()].reset_index(drop=True)
    if len(whole) > MOST_ROWS:
        whole = whole.sample(MOST_ROWS, random_state=0).reset_index(drop=True)
    features = whole.drop(columns=[table.label, *{""} & set(whole.columns)])
    features = features_of(features, features, table.dates)
    classes = None if table.kind == "regression" else whole[table.label].astype(str)
    labels = whole[table.label].to_numpy() if classes is None else classes.to_numpy()
    for seed in range(seeds):
        train, aside = train_test_split(
            np.arange(len(whole)), test_size=0.2, random_state=seed, stratify=classes
        )
        arrays = arrays_of(features, train)
        yield Split(
            _take(arrays, train),
            _take(arrays, aside),
            _as_trained(table, labels[train]),
            (features.iloc[train], features.iloc[aside]),
            (labels[train], labels[aside]),
        )


def arrays_of(features: pd.DataFrame, train: np.ndarray) -> dict[str, np.ndarray]:
    """Returns all rows, scaled by the training rows: `numbers`, and an id per text column."""
    numbers, found = [], {}
    for name in features.columns:
        column = features[name]
        if column.dtype == object:
            codes = pd.Categorical(column).codes.astype(np.int64)
            found[f"id_{len(found)}"] = np.where(codes < 0, codes.max() + 1, codes)[:, None]
            continue
        values = column.to_numpy(np.float64)
        missing = ~np.isfinite(values)
        known = values[train][~missing[train]]
        spread = known.std() if len(known) else 0.0
        scaled = (values - known.mean()) / spread if spread > 0 else np.zeros(len(values))
        numbers.append(np.where(missing, 0.0, scaled))
        if missing.any():
            numbers.append(missing.astype(np.float64))
    if numbers:
        found["numbers"] = np.stack(numbers, axis=1).astype(np.float32)
    return found


def scores_of(
    table: Table, trainers: dict[str, Trainer], splits: list[Split]
) -> dict[str, list[float]]:
    """Returns the scores of each option and of the other model, one per seed."""
    found: dict[str, list[float]] = {name: [] for name in (*trainers, BOOSTING)}
    for seed, split in enumerate(splits):
        labels, truth = split.truth
        for name, trainer in trainers.items():
            outputs = trainer.train(split, seed)
            found[name].append(score(table, truth, _as_predicted(table, outputs, labels)))
        others = predictions(table.kind, split.frames[0], labels, split.frames[1])
        found[BOOSTING].append(score(table, truth, others[BOOSTING]))
    return found


def cost_rows(
    name: str, trainers: dict[str, Trainer], split: Split, rounds: int, *, quick: bool
) -> list[Row]:
    """Returns the weights, and the times of a step and of a call, each against the mlp."""
    seconds = 0.02 if quick else 0.3
    steps = seconds_per_run(
        {option: Contender(_steps(trainer, split)) for option, trainer in trainers.items()},
        rounds=rounds,
        seconds_per_turn=seconds,
    )
    served = {key: tf.constant(values[:SERVED_ROWS]) for key, values in split.train.items()}
    calls = seconds_per_run(
        {option: Contender(_calls(trainer, served)) for option, trainer in trainers.items()},
        rounds=rounds,
        seconds_per_turn=seconds,
    )
    found = []
    for option in list(OPTIONS)[1:]:
        found += [
            Row(f"a step on {name}: {option}", MLP, steps[option], steps[MLP]),
            Row(f"{SERVED_ROWS} rows of {name}: {option}", MLP, calls[option], calls[MLP]),
            Row(
                f"weights for {name}: {option}",
                MLP,
                [trainers[option].weights()],
                [trainers[MLP].weights()],
                unit="weights",
            ),
        ]
    return found


def _steps(trainer: Trainer, split: Split) -> Callable[[int], object]:
    rows = slice(trainer.batch)
    batch = (_take(split.train, rows), split.labels[rows])
    batches = iter(tf.data.Dataset.from_tensors(batch).cache().repeat())

    def run(count: int) -> None:
        trainer.step.run(batches, count)

    return run


def _calls(trainer: Trainer, rows: dict[str, tf.Tensor]) -> Callable[[int], object]:
    def run(count: int) -> None:
        for _ in range(count):
            trainer.predict(rows).numpy()

    return run


def score_rows(name: str, scores: dict[str, list[float]]) -> list[Row]:
    """Returns each option against the mlp, and the mlp against the other model."""
    unit = UNITS[TABLES[name].kind]
    rows = [
        Row(f"{name}: {option}", MLP, scores[option], scores[MLP], unit=unit)
        for option in list(OPTIONS)[1:]
    ]
    return [Row(f"{name}: {MLP}", BOOSTING, scores[MLP], scores[BOOSTING], unit=unit), *rows]


def table_notes(scores: dict[str, dict[str, list[float]]]) -> dict[str, str]:
    """Returns a sentence per table with the mean and the spread of each score."""
    return {
        name: f"{name}: "
        + ", ".join(
            f"{model} {statistics.mean(values):.4g} ± {np.std(values):.2g}"
            for model, values in found.items()
        )
        + f" over {len(found[MLP])} seeds."
        for name, found in scores.items()
    }


def ranks_note(scores: dict[str, dict[str, list[float]]], rows: dict[str, int]) -> str:
    """Returns sentences with the mean rank of each option: over all tables, and by their size.

    Args:
        scores: Of each table and option, one per seed.
        rows: Training rows of each table.
    """
    groups = {
        "": list(scores),
        f" of less than {MANY:,} training rows": [name for name in scores if rows[name] < MANY],
        f" of {MANY:,} training rows or more": [name for name in scores if rows[name] >= MANY],
    }
    found = [
        f"Mean ranks over {len(names)} tables{which} (1 is the best): {_mean_ranks(scores, names)}."
        for which, names in groups.items()
        if names
    ]
    return " ".join(found)


def _mean_ranks(scores: dict[str, dict[str, list[float]]], names: list[str]) -> str:
    ranks: dict[str, list[float]] = {}
    for name in names:
        sign = 1 if TABLES[name].kind == "regression" else -1
        means = pd.Series({model: sign * statistics.mean(v) for model, v in scores[name].items()})
        for model, rank in means.round(6).rank().items():
            ranks.setdefault(str(model), []).append(float(rank))
    of_each = sorted((statistics.mean(found), model) for model, found in ranks.items())
    return ", ".join(f"{model} {rank:.2f}" for rank, model in of_each)


def load_note() -> str:
    """Returns a sentence with the load of the machine."""
    busy = os.getloadavg()[2]
    return f"The machine's load was {busy:.1f} on {os.cpu_count()} cores, this program included."


def _as_trained(table: Table, labels: np.ndarray) -> np.ndarray:
    if table.kind == "regression":
        values = labels.astype(np.float64)
        return ((values - values.mean()) / values.std()).astype(np.float32)[:, None]
    numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return numbers[:, None]


def _as_predicted(table: Table, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if table.kind == "binary":
        return outputs[:, 0]
    if table.kind == "multiclass":
        return np.unique(labels)[outputs.argmax(axis=1)]
    values = labels.astype(np.float64)
    return outputs[:, 0] * values.std() + values.mean()


def _take(arrays: dict[str, np.ndarray], rows: Any) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in arrays.items()}


if __name__ == "__main__":
    main()
