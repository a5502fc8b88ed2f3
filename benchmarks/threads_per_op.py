"""One thread per operation (`intra_op_threads: 1`), against TensorFlow's default of all cores.

`TrainStep` has two passes of small micro-batches under way at once. By default each operation of
each of them is also cut into a part per core, and the parts wait for one another; with one thread
per operation each core has its own pass. TensorFlow takes this number for a whole process and
before it starts: the trainer's configuration has `intra_op_threads`, other programs have the
variable `TF_NUM_INTRAOP_THREADS` in their environment. Micro-batches larger than 64 MiB pass one by
one, and leave cores idle then: measure before you choose.

The models and the input are those of `step_time`. Each contender has its own process, takes
its turns while the others wait, and has to move the weights like the others. Keras `fit` is at
`steps_per_execution` 10 K, as it comes (the baseline of `step_time`) and with one thread as well.
"Passes alone" are the gradients of our passes, two at once, of rows that lie in memory: nothing is
read, added up or applied, and no pass waits for the end of a step. A step of the same operations
hardly takes less; each row against Keras says what share of Keras' time that is.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks import _report
from benchmarks._measure import Contender, seconds_per_run
from benchmarks._result import Limit, Row

STEPS = 10
NAMES = ("medium", "convolution", "transformer")
# With how many threads per operation; 0 is TensorFlow's default.
CONTENDERS = (("ours", 1), ("ours", 0), ("keras", 1), ("keras", 0), ("passes", 1))
_mine: dict[str, Any] = {}


def main() -> None:
    """Measures each model with windows of 8 and of 16 micro-batches."""
    parser = _report.parser(__file__, rounds=7)
    parser.add_argument(
        "--models", type=lambda text: tuple(text.split(",")), default=NAMES, help=",".join(NAMES)
    )
    arguments = parser.parse_args()
    names, windows, rounds = arguments.models, (8, 16), arguments.runs
    if arguments.quick:
        names, windows, rounds = names[:1], windows[:1], 1
    processes = {
        (who, threads): ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_limit_threads,
            initargs=(threads,),
        )
        for who, threads in CONTENDERS
    }
    for name in names:
        for window in windows:
            rows = cell(processes, name, window, rounds=rounds)
            _report.publish(__file__, rows, quick=arguments.quick)


def cell(
    processes: dict[tuple[str, int], ProcessPoolExecutor], name: str, window: int, *, rounds: int
) -> list[Row]:
    """Returns ours with one thread against ours by default and against Keras by default and so."""
    moved = {
        key: process.submit(_prepare, key[0], name, window).result()
        for key, process in processes.items()
    }
    first = moved["ours", 1]
    for key, weights in moved.items():
        if key[0] == "passes":
            continue
        error = float(np.linalg.norm(weights - first) / np.linalg.norm(first))
        if error > 0.02:
            raise SystemExit(f"{key} moved the weights {error:.1%} differently: no comparison")
    times = seconds_per_run(
        {
            f"{who}/{threads}": Contender(
                lambda steps, process=process: process.submit(_take, steps).result(), STEPS
            )
            for (who, threads), process in processes.items()
        },
        rounds=rounds,
    )
    from benchmarks._models import TITLES

    def floor(keras: str) -> str:
        shares = [a / b for a, b in zip(times["passes/1"], times[keras], strict=True)]
        return f"passes alone take {statistics.median(shares):.2f} of it"

    what = f"{TITLES[name]}, K = {window}"
    return [
        Row(what, "ours by default", times["ours/1"], times["ours/0"]),
        Row(
            what,
            "Keras fit",
            times["ours/1"],
            times["keras/0"],
            limit=Limit(0.65),
            detail=floor("keras/0"),
        ),
        Row(
            what,
            "Keras fit, one thread too",
            times["ours/1"],
            times["keras/1"],
            detail=floor("keras/1"),
        ),
        Row(what, "passes alone, one thread too", times["ours/1"], times["passes/1"]),
    ]


def _limit_threads(threads: int) -> None:
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)


def _prepare(who: str, name: str, window: int) -> np.ndarray:
    """Makes this process' contender; returns how ten steps moved the weights."""
    import keras

    from benchmarks import step_time
    from benchmarks._models import MODELS, flat

    _mine.clear()
    keras.backend.clear_session()
    workload = MODELS[name]
    start = flat(workload.model())
    if who == "ours":
        model, contender = step_time.ours(workload, window)
    elif who == "passes":
        model, contender = step_time.passes_alone(workload, window)
    else:
        model, contender = step_time.keras_fit(
            workload, window, steps_per_execution=10 * window, jit=False
        )
    contender.run(STEPS)
    _mine["contender"] = contender
    return flat(model) - start


def _take(steps: int) -> None:
    _mine["contender"].run(steps)


if __name__ == "__main__":
    main()
