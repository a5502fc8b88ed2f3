"""Find the worker whose main thread keeps the others waiting.

Each worker sends what its main thread does with its heartbeats, and the chief decides. A worker is
late from the moment when another waits for it, so that work that takes long on all workers, such as
a first trace, is not limited, and a worker that waits is never the one that is named.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from trainer_module.common.tensors import Json

# How long the others wait. "short": `worker_timeout_seconds`. "long": 10 times as long, but at
# least 2 minutes, for what has no sign of progress and may take minutes on one worker alone.
_Limit = Literal["short", "long", "none"]


class Activity(NamedTuple):
    """What a main thread does, such as "in callback Mine.on_loop".

    `place` changes whenever it makes progress; `waits` is whether it waits for other workers.
    """

    what: str
    place: Json = 0
    waits: bool = False
    limit: _Limit = "short"


_OUTSIDE = Activity("in code outside TrainingLoop.fit", limit="long")
_now: Activity | Callable[[], Activity] = _OUTSIDE
_changes = 0


@contextlib.contextmanager
def doing(now: str | Activity | Callable[[], Activity], limit: _Limit = "short") -> Iterator[None]:
    """Keep what the main thread does in the block, or a function that returns it at any moment."""
    global _now, _changes
    before, _changes = _now, _changes + 1
    _now = Activity(now, limit=limit) if isinstance(now, str) else now
    try:
        yield
    finally:
        _now, _changes = before, _changes + 1


def current_activity() -> Activity:
    """Return what the main thread does now; call it from any thread."""
    changes, activity = _changes, Activity("in a call of TensorFlow")
    with contextlib.suppress(Exception):  # the thread that watches must not end
        activity = _now if isinstance(_now, Activity) else _now()
    return activity._replace(place=[changes, activity.place])


def main_thread_stack() -> str:
    """Return the stack of the main thread, as in a traceback."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


class LateWorkers:
    """The activities of all workers as the chief hears of them."""

    def __init__(self, timeout_seconds: float) -> None:
        """Begin without any worker; `timeout_seconds` is `worker_timeout_seconds`."""
        long = max(10 * timeout_seconds, 120.0)
        self._seconds = {"short": timeout_seconds, "long": long, "none": float("inf")}
        self._since: dict[int, tuple[Activity, float]] = {}

    def hear(self, number: int, activity: Activity, now: float) -> None:
        """Keep what a worker does, and since when."""
        if number not in self._since or self._since[number][0] != activity:
            self._since[number] = activity, now

    def forget(self, number: int) -> None:
        """Leave out a worker that has ended."""
        self._since.pop(number, None)

    def find(self, now: float, name: Callable[[int], str]) -> tuple[int, str] | None:
        """Return the number of a worker that the others waited for too long, and the reason."""
        waiting = {n: since for n, (activity, since) in self._since.items() if activity.waits}
        if not waiting:
            return None
        first = min(waiting, key=waiting.__getitem__)
        busy = sorted(self._since.keys() - waiting.keys())
        for number in busy or [first]:
            activity, since = self._since[number]
            limit, shown = self._seconds[activity.limit], [first]
            if not busy:  # the last one to begin has made the last progress
                limit, shown = self._seconds["long"], sorted(waiting)
                since = max(waiting.values())
            # The time that the waiting worker needed itself for the same is not late.
            needed = max(0.0, waiting[first] - since)
            if now - max(since, waiting[first]) > limit + needed:
                others = ", ".join(f"{name(n)} is {self._since[n][0].what}" for n in shown)
                here = f", here {limit:g} s" if limit != self._seconds["short"] else ""
                return number, (
                    f"makes no progress: it has been {activity.what} for {now - since:.0f} s while "
                    f"{others} (worker_timeout_seconds={self._seconds['short']:g}{here}). Its log "
                    "has the stack of its main thread; use a larger worker_timeout_seconds if it "
                    "only needs longer."
                )
        return None
