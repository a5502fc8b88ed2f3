"""Gradients of single rows, tasks and outputs: against tapes, tf.map_fn and tf.vectorized_map.

Norms of the gradients of each row of an MLP (32 inputs, 64 and 64 units) and of a small LSTM, at
64, 1,024 and 16,384 rows, with `chunk_size="auto"`; a Python loop of tapes is timed on 64 rows and
`tf.map_fn` on up to 1,024, and they count as long per row for more. `tf.vectorized_map` over the
whole batch holds all rows' gradients. Tasks: 8 outputs of one trunk, one forward pass against a
tape per loss and against one persistent tape. Jacobians: 16 outputs by 32 inputs against
`tape.batch_jacobian`. Everything runs in `tf.function`, but for the loop of tapes. Memory is the
peak (`VmHWM`) above that before the call, each in a separate process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _report
from benchmarks._measure import Contender, in_own_process, seconds_per_run
from benchmarks._result import Row
from benchmarks._transform import peak_memory

ROWS = (64, 1_024, 16_384)
# Rows on which slow contenders are timed; for more rows they count as long per row.
TIMED_ROWS = {"loop of tapes": 64, "tf.map_fn": 1_024}
OURS = "ours"
NORMS = "gradient_norms"
HELD = (NORMS, "per_example_gradients", "tf.vectorized_map of all rows")


def main() -> None:
    """Measures each group of contenders in a separate process."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    counts, rounds = ((64,), 1) if arguments.quick else (ROWS, arguments.runs)
    rows = []
    for model, most in (("MLP", counts[-1]), ("LSTM", counts[:2][-1])):
        chosen = [count for count in counts if count <= most]
        for count, found in in_own_process(measure_norms, model, chosen, rounds).items():
            rows += _rows(f"norms, {model}, {count:,} rows", found)
            print(f"{model}, {count:,} rows", found, flush=True)
    for count, found in in_own_process(measure_tasks, counts, rounds).items():
        rows += _rows(f"8 tasks, {count:,} rows", found)
    for count, found in in_own_process(measure_jacobian, counts, rounds).items():
        rows += _rows(f"Jacobian, {count:,} rows", found)
    held = [in_own_process(measure_memory, "MLP", counts[-1], name) for name in HELD]
    for name, theirs in zip(HELD[1:], held[1:], strict=True):
        what = f"memory of norms, MLP, {counts[-1]:,} rows"
        rows.append(Row(what, name, held[:1], [theirs], unit="B"))
    _report.publish(__file__, rows, quick=arguments.quick)


def _rows(what: str, found: dict[str, list[float]]) -> list[Row]:
    ours = found.pop(OURS)
    return [Row(what, name, ours, baseline) for name, baseline in found.items()]


def build(kind: str) -> tuple[Any, tuple[int, ...]]:
    """Returns a model and the shape of a row."""
    import keras

    layers = keras.layers
    if kind == "LSTM":
        return keras.Sequential(
            [keras.Input((8, 4)), layers.LSTM(16), layers.Dense(1)], name="lstm"
        ), (8, 4)
    hidden = [layers.Dense(64, activation="relu") for _ in range(2)]
    return keras.Sequential([keras.Input((32,)), *hidden, layers.Dense(1)]), (32,)


def contenders_of_norms(kind: str, count: int) -> dict[str, Callable[[], Any]]:
    """Returns functions that compute the norms of all rows."""
    import tensorflow as tf

    from trainer_module import GradientReduction, gradient_norms, per_example_gradients

    model, shape = build(kind)
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(count, *shape)), tf.float32)
    y = tf.constant(random.normal(size=(count, 1)), tf.float32)

    def norm_of_row(row: Any) -> Any:
        features, labels = row
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(features[tf.newaxis]) - labels) ** 2)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        # tf.vectorized_map runs the L2Loss of tf.linalg.global_norm row by row.
        return tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in gradients]))

    def graph(function: Callable[..., Any]) -> Any:
        return tf.function(function, autograph=False)

    norm = GradientReduction.norm()
    ours = graph(lambda x, y: gradient_norms(model, "mse", x, y, chunk_size="auto"))
    rows = graph(
        lambda x, y: per_example_gradients(model, "mse", x, y, chunk_size="auto", reduce=norm)
    )
    mapped = graph(lambda x, y: tf.map_fn(norm_of_row, (x, y), fn_output_signature=tf.float32))
    at_once = graph(lambda x, y: tf.vectorized_map(norm_of_row, (x, y)))

    def loop() -> Any:
        return [norm_of_row((x[i], y[i])) for i in range(min(count, TIMED_ROWS["loop of tapes"]))]

    some = TIMED_ROWS["tf.map_fn"]

    return {
        OURS: lambda: ours(x, y).numpy(),
        "per_example_gradients": lambda: rows(x, y).numpy(),
        "tf.map_fn": lambda: mapped(x[:some], y[:some]).numpy(),
        "tf.vectorized_map of all rows": lambda: at_once(x, y).numpy(),
        "loop of tapes": loop,
    }


def measure_norms(
    kind: str, counts: Sequence[int], rounds: int
) -> dict[int, dict[str, list[float]]]:
    """Returns seconds by number of rows, contender and round."""
    result = {}
    for count in counts:
        functions = contenders_of_norms(kind, count)
        result[count] = _seconds(functions, rounds)
        for name, timed in TIMED_ROWS.items():
            result[count][name] = [s * max(1, count / timed) for s in result[count][name]]
        expected = functions["tf.map_fn"]()
        for name in (OURS, "per_example_gradients"):
            np.testing.assert_allclose(functions[name]()[: len(expected)], expected, rtol=1e-3)
    return result


def measure_memory(kind: str, count: int, name: str) -> int:
    """Returns the peak of the resident memory above that before the call, in bytes."""
    contenders = contenders_of_norms(kind, 8)
    contenders[OURS if name == NORMS else name]()  # what a first call loads
    function = contenders_of_norms(kind, count)[OURS if name == NORMS else name]
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
    before = peak_memory()
    function()
    return max(1, peak_memory() - before)


def measure_tasks(counts: Sequence[int], rounds: int) -> dict[int, dict[str, list[float]]]:
    """Returns seconds by number of rows, contender and round."""
    return {count: _seconds_of_tasks(count, rounds) for count in counts}


def _seconds_of_tasks(count: int, rounds: int) -> dict[str, list[float]]:
    import keras
    import tensorflow as tf

    from trainer_module import task_gradients

    tasks = [f"task_{i}" for i in range(8)]
    inputs = hidden = keras.Input((32,))
    for _ in range(3):
        hidden = keras.layers.Dense(128, activation="relu")(hidden)
    model = keras.Model(inputs, {task: keras.layers.Dense(1)(hidden) for task in tasks})
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(count, 32)), tf.float32)
    y = {task: tf.constant(random.normal(size=(count, 1)), tf.float32) for task in tasks}
    variables = [v.value for v in model.trainable_variables]

    def loss(task: str) -> Any:
        return tf.reduce_mean((model(x, training=True)[task] - y[task]) ** 2)

    def one_tape_each() -> Any:
        found = []
        for task in tasks:
            with tf.GradientTape() as tape:
                value = loss(task)
            found.append(tape.gradient(value, variables))
        return [[g for g in each if g is not None] for each in found]

    def persistent() -> Any:
        with tf.GradientTape(persistent=True) as tape:
            outputs = model(x, training=True)
            values = [tf.reduce_mean((outputs[task] - y[task]) ** 2) for task in tasks]
        found = [tape.gradient(value, variables) for value in values]
        return [[g for g in each if g is not None] for each in found]

    losses = dict.fromkeys(tasks, "mse")
    functions = {
        OURS: lambda: task_gradients(model, losses, x, y, micro_batch_size=1024),
        "a tape per loss": one_tape_each,
        "one persistent tape": persistent,
    }
    graphs = {name: tf.function(f, autograph=False) for name, f in functions.items()}
    return _seconds(graphs, rounds)


def measure_jacobian(counts: Sequence[int], rounds: int) -> dict[int, dict[str, list[float]]]:
    """Returns seconds by number of rows, contender and round."""
    return {count: _seconds_of_jacobian(count, rounds) for count in counts}


def _seconds_of_jacobian(count: int, rounds: int) -> dict[str, list[float]]:
    import keras
    import tensorflow as tf

    from trainer_module import jacobian

    model = keras.Sequential(
        [keras.Input((32,)), keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(16)]
    )
    x = tf.constant(np.random.default_rng(0).normal(size=(count, 32)), tf.float32)

    def batch_jacobian() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = model(x)
        return tape.batch_jacobian(outputs, x)

    def whole_jacobian() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = model(x)
        return tape.jacobian(outputs, x)

    functions = {
        OURS: lambda: jacobian(model, x, chunk_size="auto"),
        "tape.batch_jacobian": batch_jacobian,
    }
    if count <= 64:  # its result grows with the square of the rows
        functions["tape.jacobian"] = whole_jacobian
    graphs = {name: tf.function(f, autograph=False) for name, f in functions.items()}
    return _seconds(graphs, rounds)


def _seconds(functions: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    def repeated(function: Callable[[], Any]) -> Callable[[int], object]:
        return lambda times: [function() for _ in range(times)][-1]

    contenders = {name: Contender(repeated(function)) for name, function in functions.items()}
    return seconds_per_run(contenders, rounds=rounds, seconds_per_turn=0.3)


if __name__ == "__main__":
    main()
