"""What is often claimed about training in TensorFlow, switched on and off on the same task.

Only looked at: nothing here depends on this library, and nothing was tuned until a claim came out.
"x % faster" is read as x % less time.

- **Normalised inputs**: an MLP (64, 32) on the 12 numbers of a taxi ride, as they are and as
  z-scores; seconds and optimizer steps until the held-out loss is as small as the worse of the two
  ever gets in 1,000 steps of 256 rows, each with Adam at the best of three learning rates. Each
  round has other initial weights and another order of rows.
- **AdamW against Adam**: the same race on the z-scores, both at 0.001, AdamW with its default
  weight decay of 0.004.
- **tf.function, XLA, bfloat16**: one optimizer step (forward, backward, Adam) on a batch in memory,
  written by hand, with and without; XLA and bfloat16 inside `tf.function`.
- **Depthwise-separable convolution**: `SeparableConv2D` in place of `Conv2D` (64 and 128 filters,
  3 x 3, after a full one of 32) on handwritten digits of 32 x 32 pixels; the time of a step of 64
  images, and below the table how many held-out digits each knew after the same number of epochs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import _races, _report
from benchmarks._measure import Contender, seconds_per_run
from benchmarks._models import MODELS, TITLES, Workload
from benchmarks._result import Limit, Row, Unit

LEARNING_RATES = (1e-2, 3e-3, 1e-3)
STEP_ROWS = 256
DIGIT_EPOCHS = 15
Layers = keras.layers


def main() -> None:
    """Looks at one claim after the other."""
    parser = _report.parser(__file__, rounds=7)
    parser.add_argument("--only", choices=CLAIMS, help="one claim")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.runs
    for name, look_at in CLAIMS.items():
        if arguments.only in (None, name):
            rows, notes = look_at(rounds, arguments.quick)
            _report.publish(__file__, rows, quick=arguments.quick, notes=notes)


Findings = tuple[list[Row], dict[str, str]]


def normalised(rounds: int, quick: bool) -> Findings:
    """z-scores against the numbers as they are, each at its best learning rate."""
    raw = _races.taxi_rows()
    scaled = _races.normalised(*raw)
    courses: list[dict[str, _races.Course]] = []
    for seed in range(rounds):
        racers = {
            f"{kind}/{rate:g}": _races.Racer(*rows, lambda rate=rate: keras.optimizers.Adam(rate))
            for kind, rows in (("raw", raw), ("scaled", scaled))
            for rate in (LEARNING_RATES[:1] if quick else LEARNING_RATES)
        }
        courses.append(_races.race(racers, seed=seed, looks=3 if quick else _races.LOOKS))
        keras.backend.clear_session()
    best = {
        kind: min(
            (name for name in courses[0] if name.startswith(kind)),
            key=lambda name: statistics.median(min(course[name].losses) for course in courses),
        )
        for kind in ("raw", "scaled")
    }
    rows, notes = _arrivals(
        "normalised inputs",
        [{kind: course[name] for kind, name in best.items()} for course in courses],
        ours="scaled",
        baseline="raw",
        baseline_name="as they are",
        limit=Limit(0.75, whose="claim"),
    )
    rates = {kind: name.partition("/")[2] for kind, name in best.items()}
    notes["learning rates"] = (
        f"The best learning rate was {rates['scaled']} for the z-scores and {rates['raw']} for the "
        "inputs as they are."
    )
    return rows, notes


def adamw(rounds: int, quick: bool) -> Findings:
    """AdamW against Adam at Keras' defaults."""
    train, held_out = _races.normalised(*_races.taxi_rows())
    racers = {
        "adamw": _races.Racer(train, held_out, lambda: keras.optimizers.AdamW(1e-3)),
        "adam": _races.Racer(train, held_out, lambda: keras.optimizers.Adam(1e-3)),
    }
    courses = []
    for seed in range(rounds):
        courses.append(_races.race(racers, seed=seed, looks=3 if quick else _races.LOOKS))
        keras.backend.clear_session()
    return _arrivals("AdamW", courses, ours="adamw", baseline="adam", baseline_name="Adam")


def compiled(rounds: int, quick: bool) -> Findings:
    """tf.function against eager, XLA against tf.function without."""
    rows = []
    for name in ["small"] if quick else MODELS:
        steps = {
            "eager": hand_written(MODELS[name], graph=False),
            "graph": hand_written(MODELS[name]),
            "xla": hand_written(MODELS[name], jit_compile=True),
        }
        seconds = seconds_per_run(steps, rounds=rounds, seconds_per_turn=0.1 if quick else 0.8)
        what = f"{TITLES[name]}, {STEP_ROWS} rows"
        claim = Limit(0.5, whose="claim")
        rows += [
            Row(f"tf.function: {what}", "eager", seconds["graph"], seconds["eager"], limit=claim),
            Row(f"XLA: {what}", "tf.function", seconds["xla"], seconds["graph"]),
        ]
        keras.backend.clear_session()
    return sorted(rows, key=lambda row: row.baseline_name), {}


def bfloat16(rounds: int, quick: bool) -> Findings:
    """Mixed precision against float32."""
    rows = []
    for name in ["small"] if quick else MODELS:
        steps = {
            policy: hand_written(MODELS[name], policy=policy)
            for policy in ("float32", "mixed_bfloat16")
        }
        seconds = seconds_per_run(steps, rounds=rounds, seconds_per_turn=0.1 if quick else 0.8)
        what = f"mixed bfloat16: {TITLES[name]}, {STEP_ROWS} rows"
        rows.append(Row(what, "float32", seconds["mixed_bfloat16"], seconds["float32"]))
        keras.backend.clear_session()
    return rows, {}


def separable(rounds: int, quick: bool) -> Findings:
    """Depthwise-separable against full convolution on scikit-learn's digits."""
    (images, labels), (held_out, known) = digits()
    models = {"separable": digit_model(Layers.SeparableConv2D), "full": digit_model(Layers.Conv2D)}
    epochs = 1 if quick else DIGIT_EPOCHS
    for model in models.values():
        model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy")
        model.fit(images, labels, batch_size=64, epochs=epochs, verbose=0)
    found = {
        name: float(np.mean(np.argmax(model(held_out), axis=1) == known))
        for name, model in models.items()
    }
    batch = (tf.constant(images[:64]), tf.constant(labels[:64]))
    steps = {
        name: _step(model, "sparse_categorical_crossentropy", batch)
        for name, model in models.items()
    }
    seconds = seconds_per_run(steps, rounds=rounds, seconds_per_turn=0.1 if quick else 0.8)
    row = Row(
        what="depthwise-separable convolution",
        baseline_name="full convolution",
        ours=seconds["separable"],
        baseline=seconds["full"],
        limit=Limit(0.6, whose="claim"),
    )
    weights = {name: model.count_params() for name, model in models.items()}
    note = (
        f"After {epochs} epochs the depthwise-separable model ({weights['separable']:,} "
        f"weights) knew {found['separable']:.1%} of the held-out digits, the full one "
        f"({weights['full']:,}) {found['full']:.1%}."
    )
    return [row], {row.what: note}


CLAIMS: dict[str, Callable[[int, bool], Findings]] = {
    "normalised": normalised,
    "compiled": compiled,
    "separable": separable,
    "adamw": adamw,
    "bfloat16": bfloat16,
}


def hand_written(
    workload: Workload, *, policy: str = "float32", graph: bool = True, jit_compile: bool = False
) -> Contender:
    """A step as the TensorFlow guide writes it, on one batch."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = workload.model()
    finally:
        keras.config.set_dtype_policy(before)
    batch = tuple(tf.constant(array) for array in workload.data(STEP_ROWS))
    return _step(model, workload.loss, batch, graph=graph, jit_compile=jit_compile)


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns (images `[rows, 32, 32, 1]`, labels `[rows]`) to train on, and held out."""
    from sklearn.datasets import load_digits

    loaded: Any = load_digits()
    images = tf.image.resize(loaded.images[..., None] / 16.0, (32, 32)).numpy().astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    held_out, train = order[:400], order[400:]
    return (images[train], loaded.target[train]), (images[held_out], loaded.target[held_out])


def digit_model(convolution: Callable[..., Any]) -> keras.Model:
    """Three convolutions; the first, on a single channel, is a full one in both."""
    keras.utils.set_random_seed(1)
    options = {"padding": "same", "activation": "relu"}
    return keras.Sequential(
        [
            keras.Input((32, 32, 1)),
            Layers.Conv2D(32, 3, **options),
            convolution(64, 3, strides=2, **options),
            convolution(128, 3, strides=2, **options),
            Layers.GlobalAveragePooling2D(),
            Layers.Dense(10, activation="softmax"),
        ]
    )


def _step(
    model: keras.Model,
    loss: str,
    batch: tuple[Any, Any],
    *,
    graph: bool = True,
    jit_compile: bool = False,
) -> Contender:
    optimizer, loss_fn = keras.optimizers.Adam(1e-3), keras.losses.get(loss)
    optimizer.build(model.trainable_variables)
    variables = [v.value for v in model.trainable_variables]

    def step(features: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            outputs = model(features, training=True)
            mean = tf.reduce_mean(loss_fn(labels, outputs))
        optimizer.apply(tape.gradient(mean, variables), model.trainable_variables)

    if graph:
        step = tf.function(step, jit_compile=jit_compile)

    def run(steps: int) -> None:
        for _ in range(steps):
            step(*batch)

    return Contender(run)


def _arrivals(
    what: str,
    courses: list[dict[str, _races.Course]],
    *,
    ours: str,
    baseline: str,
    baseline_name: str,
    limit: Limit | None = None,
) -> Findings:
    goals = [max(min(course.losses) for course in both.values()) for both in courses]
    measures: tuple[tuple[int, str, Unit], ...] = ((1, "time", "s"), (0, "steps", "steps"))
    mine = [both[ours].arrival(goal) for both, goal in zip(courses, goals, strict=True)]
    theirs = [both[baseline].arrival(goal) for both, goal in zip(courses, goals, strict=True)]
    rows = [
        Row(
            what=f"{what}: {measure} to the same loss",
            baseline_name=baseline_name,
            ours=[pair[place] for pair in mine],
            baseline=[pair[place] for pair in theirs],
            unit=unit,
            limit=limit,
        )
        for place, measure, unit in measures
    ]
    low = {
        name: statistics.median(min(both[name].losses) for both in courses)
        for name in (ours, baseline)
    }
    note = (
        f"{what[0].upper()}{what[1:]}: the smallest held-out loss was {low[ours]:.4f}, "
        f"{baseline_name} {low[baseline]:.4f} (medians)."
    )
    return rows, {what: note}


if __name__ == "__main__":
    main()
