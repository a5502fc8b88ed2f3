"""Gradients of single rows: against tapes, tf.map_fn and tf.vectorized_map.

Rows per second. Norms of the gradients of each row of an MLP (32 inputs, 64 and 64 units) and of a
small LSTM, at 64, 1,024 and 16,384 rows, with `chunk_size="auto"`; a Python loop of tapes takes 64
of the rows, and `tf.map_fn` at most 1,024. `tf.vectorized_map` over the whole batch holds all rows'
gradients. Everything runs in `tf.function`, except for the loop of tapes.

Memory is the peak (`VmHWM`) of the first call for these rows above that before the call, tracing
included, each in a separate process. The loop of tapes is in it at 64 rows, and `tf.map_fn` up to
1,024.
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
# The most rows that slow contenders take.
MOST_ROWS = {"loop of tapes": 64, "tf.map_fn": 1_024}
OURS = "ours"
MEASURED = ("per_example_gradients", "tf.map_fn", "tf.vectorized_map of all rows", "loop of tapes")
PARTS = ("norms", "memory")


def main() -> None:
    """Measures each group of contenders in a separate process."""
    parser = _report.parser(__file__, rounds=3)
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated: %(default)s")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}")
    counts, rounds = ((64,), 1) if arguments.quick else (ROWS, arguments.runs)
    rows = []
    for model, most in (("MLP", counts[-1]), ("LSTM", counts[:2][-1])):
        if "norms" in parts:
            chosen = [count for count in counts if count <= most]
            for count, found in in_own_process(measure_norms, model, chosen, rounds).items():
                rows += _rows(f"norms, {model}, {count:,} rows", found)
                print(f"{model}, {count:,} rows", found, flush=True)
    for count in counts if "memory" in parts else ():
        names = [name for name in MEASURED if count <= MOST_ROWS.get(name, count)]
        held = {name: in_own_process(measure_memory, count, name) for name in (OURS, *names)}
        print(f"memory, {count:,} rows", held, flush=True)
        rows += [
            Row(f"memory of norms, MLP, {count:,} rows", name, [held[OURS]], [held[name]], unit="B")
            for name in names
        ]
    _report.publish(__file__, rows, quick=arguments.quick)


def _rows(what: str, found: dict[str, list[float]]) -> list[Row]:
    ours = found.pop(OURS)
    return [Row(what, name, ours, rates, unit="rows/s") for name, rates in found.items()]


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

    from trainer_module import gradient_norms, per_example_gradients

    model, shape = build(kind)
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(count, *shape)), tf.float32)
    y = tf.constant(random.normal(size=(count, 1)), tf.float32)

    def norm(gradients: list[Any]) -> Any:
        # tf.vectorized_map runs the L2Loss of tf.linalg.global_norm row by row.
        return tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in gradients]))

    def norm_of_row(row: Any) -> Any:
        features, labels = row
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(features[tf.newaxis]) - labels) ** 2)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        return norm(gradients)

    def graph(function: Callable[..., Any]) -> Any:
        return tf.function(function, autograph=False)

    ours = graph(lambda x, y: gradient_norms(model, "mse", x, y, chunk_size="auto"))
    rows = graph(
        lambda x, y: per_example_gradients(model, "mse", x, y, chunk_size="auto", reduce=norm)
    )
    mapped = graph(lambda x, y: tf.map_fn(norm_of_row, (x, y), fn_output_signature=tf.float32))
    at_once = graph(lambda x, y: tf.vectorized_map(norm_of_row, (x, y)))

    def loop() -> Any:
        return [norm_of_row((x[i], y[i])) for i in range(min(count, MOST_ROWS["loop of tapes"]))]

    some = MOST_ROWS["tf.map_fn"]

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
    """Returns rows per second by number of rows, contender and round."""
    result = {}
    for count in counts:
        functions = contenders_of_norms(kind, count)
        result[count] = _rates(functions, count, rounds)
        expected = functions["tf.map_fn"]()
        for name in (OURS, "per_example_gradients"):
            np.testing.assert_allclose(functions[name]()[: len(expected)], expected, rtol=1e-3)
    return result


def measure_memory(count: int, name: str) -> int:
    """Returns the peak of the resident memory above that before the call, in bytes."""
    contenders_of_norms("MLP", 8)[name]()  # what a first call loads
    function = contenders_of_norms("MLP", count)[name]
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
    before = peak_memory()
    function()
    return max(1, peak_memory() - before)


def _rates(functions: dict[str, Any], count: int, rounds: int) -> dict[str, list[float]]:
    def repeated(function: Callable[[], Any]) -> Callable[[int], object]:
        return lambda times: [function() for _ in range(times)][-1]

    contenders = {name: Contender(repeated(function)) for name, function in functions.items()}
    seconds = seconds_per_run(contenders, rounds=rounds, seconds_per_turn=0.3)
    return {
        name: [min(count, MOST_ROWS.get(name, count)) / each for each in found]
        for name, found in seconds.items()
    }


if __name__ == "__main__":
    main()
