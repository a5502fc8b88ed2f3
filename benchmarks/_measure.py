"""Contenders timed in turns: A B C, C B A, A B C, ..."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# A turn repeats what is timed until the clock and the machine's short interruptions hardly count.
SECONDS_PER_TURN = 0.8


class Contender(NamedTuple):
    """Something that does the same work as the others.

    Attributes:
        run: Does that work so many times.
        multiple: `run` only takes multiples of it.
    """

    run: Callable[[int], object]
    multiple: int = 1


def seconds_per_run(
    contenders: Mapping[str, Contender], *, rounds: int, seconds_per_turn: float = SECONDS_PER_TURN
) -> dict[str, list[float]]:
    """Returns seconds of one run per contender and round; who goes first changes every round.

    Each contender is run before (compilation, caches) and once more to see how many runs fill a
    turn; neither counts. Drift of the machine hits all contenders of a round alike: compare within
    rounds, then take the median over them.
    """
    counts = {}
    for name, contender in contenders.items():
        contender.run(contender.multiple)
        elapsed = _seconds(contender, contender.multiple)
        counts[name] = contender.multiple * max(1, round(seconds_per_turn / elapsed))
    names = list(contenders)
    found: dict[str, list[float]] = {name: [] for name in names}
    for index in range(rounds):
        for name in names if index % 2 == 0 else reversed(names):
            found[name].append(_seconds(contenders[name], counts[name]) / counts[name])
    return found


def in_own_process(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Returns what the function does, from a new process; a killed one is an error."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments, **options).result()


def rounds_of_processes(
    processes: int, measure: Callable[..., dict[str, list[float]]], *arguments: Any, **options: Any
) -> dict[str, list[float]]:
    """Returns what `measure` finds in so many processes, one after another.

    A process may be slow at the same operations for seconds on end, or one of its contenders faster
    than its twin: more rounds in it would not show that.
    """
    found: dict[str, list[float]] = {}
    for _ in range(processes):
        for name, values in in_own_process(measure, *arguments, **options).items():
            found.setdefault(name, []).extend(values)
    return found


def _seconds(contender: Contender, count: int) -> float:
    gc.collect()  # datasets and their threads that the one before has left behind
    started = time.perf_counter()
    contender.run(count)
    return time.perf_counter() - started
