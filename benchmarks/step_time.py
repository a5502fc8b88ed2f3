"""One optimizer step on a window of K micro-batches, against the other ways to take it.

Who does the same work in the same process, in turns:

- **Keras `fit`** with `gradient_accumulation_steps=K` on batches of one micro-batch, at the best of
  `steps_per_execution` 1, K and 10 K, with XLA and without. At most 0.65 of its time is wanted;
  0.7 of recurrent layers; each row says what share of it the full batch takes.
- **Full batch**: a hand-written `tf.function` that takes the rows of the window at once (if they
  fit into memory), the better of with XLA and without. At most 1.15 of its time is wanted where
  arithmetic decides: everywhere but with the small MLP, whose whole step takes less than a
  millisecond, and 1.2 of recurrent layers.
- **Ours with XLA** and **ours without**: `jit_compile` true and false. By default XLA is on for
  recurrent layers, and on a GPU.
- **Ours, one by one**: one pass per micro-batch. By default ours takes up to four small
  ones in one pass, and has up to two passes under way, while all of it holds less than 128 MiB; on
  a GPU up to 32 in one pass, while it holds less than 1/64 of its memory.
- **Accumulation by hand**: one `tf.function` that adds up the micro-batches' gradients in a loop of
  the graph and applies them, without weights, ragged rows or a check of anything; what
  micro-batches of this size cost on this machine, whoever runs them.
- **Gradients alone**: the same loop without adding anything up: each micro-batch's gradients, the
  last of which are applied. What passes these micro-batches one by one cannot take less.
- **Loop of tf.functions**: what one finds in answers to "gradient accumulation in TensorFlow 2":
  one `tf.function` that adds a micro-batch's gradients to variables, one that applies them, a
  Python loop around both.
- **Eager loop**: the same without `tf.function`.

All have the same weights to begin with, rows, order of rows, optimizer (Adam) and cached tf.data
input; before anything is timed, the weights after 10 steps must agree. What is done by hand, but
for the full batch, is without XLA.
On a GPU two larger models take the place of those with halved micro-batches.
Micro-batches have 32 rows (small MLP), 64 (medium MLP, convolution) or 16 (transformer block)
unless a row says otherwise. tf.data's autotuner is off for all: with it the end of `fit` waits for
the tuner's next turn, and at times `fit` took twice as long.

How the table reads, on two cores: 8 to 64 rows at a time make less of two cores than 128 to 1,024
do, whoever takes them one by one; what ours takes together comes near the full batch, unless a
whole step takes less than a millisecond. With 64 images or 16 sequences in a micro-batch more of
the time is arithmetic, so that `fit` is nearer to the full batch. Where the full batch itself takes
more than 0.65 of `fit`'s time, as with 64 images on the AMD machine, there is hardly any
accumulation left to save, and 0.65 is missed: the gradients alone, of our passes, take nearly as
much of it, which `threads_per_op` measures ("passes alone"). Absolute times differ between runs (a
row's two columns are always of one run).

Each cell is measured in several processes, one after another: a process may be slow at the same
operations for seconds on end, whoever takes them, and more rounds in it would not show that.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from benchmarks import _report
from benchmarks._measure import Contender, rounds_of_processes, seconds_per_run
from benchmarks._models import HALVED, MODELS, ON_GPU, RECURRENT, TITLES, Workload, flat
from benchmarks._result import Limit, Row
from trainer_module import TrainStep
from trainer_module.window import spec as passes

NAMES = {
    "keras": "Keras fit",
    "full": "full batch",
    "ours_jit": "ours with XLA",
    "ours_plain": "ours without XLA",
    "one_by_one": "ours, one by one",
    "hand": "accumulation by hand",
    "alone": "gradients alone",
    "loop": "loop of tf.functions",
    "eager": "eager loop",
}
WORKLOADS = {**MODELS, **RECURRENT, **HALVED, **ON_GPU}
# The largest ratio wanted, by baseline and model.
LIMITS = {
    "keras": {model: 0.7 if model in RECURRENT else 0.65 for model in WORKLOADS},
    "full": {**dict.fromkeys({*WORKLOADS} - {"small"}, 1.15), **dict.fromkeys(RECURRENT, 1.2)},
    "ours_jit": {},
    "ours_plain": {},
    "one_by_one": {},
    "hand": {},
    "alone": {},
    "loop": {"small": 0.3, "medium": 0.6},
    "eager": {},
}
CONTENDERS = (
    *("ours", "ours_jit", "ours_plain", "keras", "keras_jit", "full", "full_jit"),
    *("one_by_one", "hand", "alone", "loop", "eager"),
)
# Every measurement takes a multiple of it: steps_per_execution = 10 K then takes whole windows.
STEPS = 10
WINDOWS_OF_DATA = 4


def main() -> None:
    """Runs the cells that the arguments name, and keeps those with ours and a baseline."""
    parser = _report.parser(__file__, rounds=3, processes=3)
    gpu = bool(tf.config.list_physical_devices("GPU"))
    usual = (*MODELS, *RECURRENT, *(ON_GPU if gpu else HALVED))
    parser.add_argument("--models", type=_names, default=usual, help=",".join(WORKLOADS))
    parser.add_argument("--windows", type=_numbers, default=(8, 16), help="micro-batches: 8,16")
    parser.add_argument("--only", type=_names, default=CONTENDERS, help=",".join(CONTENDERS))
    arguments = parser.parse_args()
    models, windows = arguments.models, arguments.windows
    processes, rounds = arguments.processes, arguments.runs
    if arguments.quick:
        models, windows, processes, rounds = models[:1], windows[:1], 1, 1
    for model in models:
        for window in windows:
            times = rounds_of_processes(
                processes, cell, model, window, rounds=rounds, only=arguments.only
            )
            for name, values in times.items():
                median, low, high = (1e3 * f(values) for f in (statistics.median, min, max))
                print(f"{model} K={window} {name:9} {median:.3f} ms ({low:.3f} to {high:.3f})")
            # Cell by cell: what a long run has measured is not lost when it is interrupted.
            if rows := comparisons(model, window, times):
                _report.publish(__file__, rows, quick=arguments.quick)


def comparisons(model: str, window: int, times: dict[str, list[float]]) -> list[Row]:
    """Returns a row per baseline, each at its best: steps_per_execution, with XLA or without."""
    rows = []
    for name, limits in LIMITS.items():
        best = _best(name, times)
        if "ours" not in times or best is None:
            continue
        kind, _, steps = best.partition("/")
        details = ["XLA"] if kind == f"{name}_jit" else []
        details += [f"steps_per_execution={steps}"] if steps else []
        what = f"{TITLES[model]}, K = {window}"
        limit = limits.get(model)
        full = _best("full", times)
        if name == "keras" and full is not None:
            share = _median_ratio(times[full], times[best])
            details.append(f"the full batch takes {share:.2f} of it")
        if name == "full" and "alone" in times:
            share = _median_ratio(times["alone"], times[best])
            details.append(f"gradients alone take {share:.2f} of it")
        rows.append(
            Row(
                what=what,
                baseline_name=NAMES[name],
                ours=times["ours"],
                baseline=times[best],
                limit=None if limit is None else Limit(limit),
                detail=", ".join(details),
            )
        )
    return rows


def _best(name: str, times: dict[str, list[float]]) -> str | None:
    """Returns the fastest contender of a name, with XLA or without; None if there is none."""
    found = [key for key in times if key.split("/")[0] in (name, f"{name}_jit")]
    return min(found, key=lambda key: statistics.median(times[key]), default=None)


def cell(model: str, window: int, *, rounds: int, only: Sequence[str]) -> dict[str, list[float]]:
    """Returns seconds per optimizer step for each contender and round."""
    workload = WORKLOADS[model]
    makers: dict[str, Callable[[], tuple[keras.Model, Contender]]] = {}
    for name in only:
        if name.startswith("keras"):
            for steps in (1, window, 10 * window):
                makers[f"{name}/{steps}"] = functools.partial(
                    keras_fit,
                    workload,
                    window,
                    steps_per_execution=steps,
                    jit=name.endswith("_jit"),
                )
        else:
            makers[name] = functools.partial(MAKERS[name], workload, window)
    made = {name: make() for name, make in makers.items()}
    check_same_work(workload, {name: pair for name, pair in made.items() if name != "alone"})
    times = seconds_per_run(
        {name: contender for name, (_, contender) in made.items()}, rounds=rounds
    )
    keras.backend.clear_session()
    return times


def check_same_work(workload: Workload, made: dict[str, tuple[keras.Model, Contender]]) -> None:
    """Takes 10 steps with each: all must move the weights alike, or the race is not one."""
    start = flat(workload.model())
    reference: np.ndarray | None = None
    for name, (model, contender) in made.items():
        contender.run(STEPS)
        moved = flat(model) - start
        reference = moved if reference is None else reference
        error = float(np.linalg.norm(moved - reference) / np.linalg.norm(reference))
        if error > (0.1 if tf.config.list_physical_devices("GPU") else 0.02):  # TF32 has 10 bits
            raise SystemExit(
                f"{name} moved the weights {error:.1%} differently from {next(iter(made))}"
            )


def ours(
    workload: Workload, window: int, *, jit: bool | str = "auto", one_by_one: bool = False
) -> tuple[keras.Model, Contender]:
    """TrainStep.run, as TrainingLoop calls it."""
    model = workload.model()
    step = TrainStep(
        model,
        _optimizer(),
        workload.loss,
        micro_batch_size=workload.micro_batch_rows,
        jit_compile=jit,
    )
    batches = iter(_batches(workload, window, workload.micro_batch_rows * window))
    one = {"bytes_at_once": 0, "micro_batches": 1, "parallel_passes": 1}
    alone = {kind: limits._replace(**one) for kind, limits in passes.LIMITS.items()}
    with mock.patch.dict(passes.LIMITS, alone if one_by_one else {}):
        step.run(batches, 0)  # traced here
    return model, Contender(lambda steps: step.run(batches, steps), STEPS)


def keras_fit(
    workload: Workload, window: int, *, steps_per_execution: int, jit: bool
) -> tuple[keras.Model, Contender]:
    """Keras' own accumulation."""
    model = workload.model()
    model.compile(
        _optimizer(gradient_accumulation_steps=window),
        workload.loss,
        steps_per_execution=steps_per_execution,
        jit_compile=jit,
    )
    batches = _batches(workload, window, workload.micro_batch_rows)

    def run(steps: int) -> None:
        model.fit(batches, steps_per_epoch=steps * window, verbose=0)  # pyright: ignore

    return model, Contender(run, STEPS)


def full(workload: Workload, window: int, *, jit: bool = False) -> tuple[keras.Model, Contender]:
    """All rows of the window at once, many steps per call."""
    model, optimizer = workload.model(), _optimizer()
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.get(workload.loss)
    batches = iter(_batches(workload, window, workload.micro_batch_rows * window))

    @tf.function(jit_compile=jit)
    def step(features: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_fn(labels, model(features, training=True)))
        optimizer.apply(
            tape.gradient(loss, [v.value for v in model.trainable_variables]),
            model.trainable_variables,
        )

    @tf.function
    def train(steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            step(*next(batches))

    return model, Contender(lambda steps: train(tf.constant(steps)), STEPS)


def hand(
    workload: Workload, window: int, *, accumulate: bool = True
) -> tuple[keras.Model, Contender]:
    """The least that accumulation in one graph has to do, many steps per call."""
    model, optimizer = workload.model(), _optimizer()
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.get(workload.loss)
    variables = [v.value for v in model.trainable_variables]
    batches = iter(_batches(workload, window, workload.micro_batch_rows))

    @tf.function
    def train(steps: tf.Tensor) -> None:
        for _ in tf.range(steps):
            sums = [tf.zeros_like(v) for v in variables]
            for _ in tf.range(window):
                features, labels = next(batches)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(loss_fn(labels, model(features, training=True))) / window
                gradients = tape.gradient(loss, variables)
                if accumulate:
                    gradients = [total + g for total, g in zip(sums, gradients, strict=True)]
                sums = gradients
            optimizer.apply(sums, model.trainable_variables)

    return model, Contender(lambda steps: train(tf.constant(steps)), STEPS)


def passes_alone(workload: Workload, window: int) -> tuple[keras.Model, Contender]:
    """Gradients of our passes, of rows in memory, two at once without an end: a floor for a step.

    Nothing is read, added up or applied, and no pass waits for a step to end.
    """
    model = workload.model()
    loss_fn = keras.losses.get(workload.loss)
    variables = [v.value for v in model.trainable_variables]
    rows = min(passes.LIMITS["CPU"].micro_batches, window) * workload.micro_batch_rows
    features, labels = map(tf.constant, workload.data(rows))

    @tf.function
    def take(count: tf.Tensor) -> Any:
        def body(index: Any, _: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(loss_fn(labels, model(features, training=True)))
            return index + 1, tape.gradient(loss, variables)

        first = (tf.constant(0), [tf.zeros_like(v) for v in variables])
        at_once = passes.LIMITS["CPU"].parallel_passes
        return tf.while_loop(lambda i, _: i < count, body, first, parallel_iterations=at_once)[1]

    per_step = window * workload.micro_batch_rows // rows
    return model, Contender(lambda steps: take(tf.constant(steps * per_step)), STEPS)


def loop(workload: Workload, window: int, *, graph: bool = True) -> tuple[keras.Model, Contender]:
    """Accumulators in variables, a Python loop over micro-batches."""
    model, optimizer = workload.model(), _optimizer()
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.get(workload.loss)
    variables = [v.value for v in model.trainable_variables]
    sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
    batches = iter(_batches(workload, window, workload.micro_batch_rows))

    def accumulate(features: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_fn(labels, model(features, training=True))) / window
        for total, gradient in zip(sums, tape.gradient(loss, variables), strict=True):
            total.assign_add(gradient)

    def apply() -> None:
        optimizer.apply([total.read_value() for total in sums], model.trainable_variables)
        for total in sums:
            total.assign(tf.zeros_like(total))

    if graph:
        accumulate, apply = tf.function(accumulate), tf.function(apply)

    def run(steps: int) -> None:
        for _ in range(steps):
            for _ in range(window):
                accumulate(*next(batches))
            apply()

    return model, Contender(run, STEPS if graph else 1)


MAKERS: dict[str, Callable[..., tuple[keras.Model, Contender]]] = {
    "ours": ours,
    "one_by_one": functools.partial(ours, one_by_one=True),
    "ours_jit": functools.partial(ours, jit=True),
    "ours_plain": functools.partial(ours, jit=False),
    "full": full,
    "full_jit": functools.partial(full, jit=True),
    "hand": hand,
    "alone": functools.partial(hand, accumulate=False),
    "loop": loop,
    "eager": functools.partial(loop, graph=False),
}


def _median_ratio(ours: list[float], baseline: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, baseline, strict=True))


def _optimizer(**options: Any) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(1e-3, **options)


def _batches(workload: Workload, window: int, rows: int) -> tf.data.Dataset:
    data = workload.data(WINDOWS_OF_DATA * window * workload.micro_batch_rows)
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(rows, drop_remainder=True)
    options = tf.data.Options()
    # With it, the end of `fit` waits for the autotuner's next turn, up to as long as `fit` took.
    options.autotune.enabled = False
    return dataset.cache().repeat().prefetch(2).with_options(options)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    main()
