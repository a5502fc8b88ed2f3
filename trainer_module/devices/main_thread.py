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

from trainer_module.common.json_values import Json

Limit = Literal["short", "long", "none"]
_TIMES, _LEAST_SECONDS = 10, 120.0


class Activity(NamedTuple):
    """What a main thread does.

    Attributes:
        what: As text, such as "in callback CsvLog.on_loop".
        place: Changes whenever the thread makes progress, even if `what` does not.
        waits: Whether it waits for other workers.
        limit: "short": the others wait for it for `worker_timeout_seconds`. "long": for 10 times as
            long, but at least 2 minutes, because it has no sign of progress and may take minutes on
            one worker alone. "none": as long as it takes.
    """

    what: str
    place: Json = 0
    waits: bool = False
    limit: Limit = "short"


class MainThread:
    """What the main thread of this process does, for its other threads to see."""

    def __init__(self) -> None:
        """Begin outside of everything that is known."""
        self._read: Callable[[], Activity] = lambda: Activity(
            "in code outside TrainingLoop.fit", limit="long"
        )
        self._changes = 0

    def now(self) -> Activity:
        """Return what it does now."""
        changes, activity = self._changes, Activity("in a call of TensorFlow")
        with contextlib.suppress(Exception):  # the thread that watches must not end
            activity = self._read()
        return activity._replace(place=[changes, activity.place])

    @contextlib.contextmanager
    def doing(self, read: Callable[[], Activity]) -> Iterator[None]:
        """Let `read` return what the main thread does in the block."""
        before = self._read
        self._change(read)
        try:
            yield
        finally:
            self._change(before)

    def _change(self, read: Callable[[], Activity]) -> None:
        self._read, self._changes = read, self._changes + 1

    @staticmethod
    def stack() -> str:
        """Return the stack of the main thread, as in a traceback."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""


class Late(NamedTuple):
    """A worker that keeps the others waiting: its number and the reason, to follow its name."""

    number: int
    reason: str


class LateWorkers:
    """The activities of all workers as the chief hears of them."""

    def __init__(self, timeout_seconds: float) -> None:
        """Begin without any worker; `timeout_seconds` is `worker_timeout_seconds`."""
        self._timeout_seconds = timeout_seconds
        self._since: dict[int, tuple[Activity, float]] = {}

    def hear(self, number: int, activity: Activity, now: float) -> None:
        """Keep what a worker does, and since when."""
        known = self._since.get(number)
        if known is None or known[0] != activity:
            self._since[number] = activity, now

    def forget(self, number: int) -> None:
        """Leave out a worker that has ended."""
        self._since.pop(number, None)

    def find(self, now: float, name: Callable[[int], str]) -> Late | None:
        """Return the worker that the others have waited for too long; None if there is none."""
        waiting = {n: since for n, (activity, since) in self._since.items() if activity.waits}
        if not waiting:
            return None
        first = min(waiting, key=waiting.__getitem__)
        busy = self._since.keys() - waiting.keys()
        for number in sorted(busy or {first}):
            activity, since = self._since[number]
            limit = self._seconds("long" if activity.waits else activity.limit)
            if activity.waits:  # all wait: the last one to begin has made the last progress
                since = max(waiting.values())
            # The time that the waiting worker needed itself for the same is not late.
            late, needed = now - max(since, waiting[first]), max(0.0, waiting[first] - since)
            if late <= limit + needed:
                continue
            others = f"while {name(first)} is {self._since[first][0].what}"
            if activity.waits:
                others = "and all workers wait for each other: " + ", ".join(
                    f"{name(n)} is {self._since[n][0].what}" for n in sorted(waiting)
                )
            return Late(
                number,
                f"makes no progress: it has been {activity.what} for {now - since:.0f} s {others} "
                f"(worker_timeout_seconds={self._timeout_seconds:g}"
                + (f", here {limit:g} s" if limit != self._timeout_seconds else "")
                + "). Its log has the stack of its main thread; use a larger "
                "worker_timeout_seconds if it only needs longer.",
            )
        return None

    def _seconds(self, limit: Limit) -> float:
        long = max(_TIMES * self._timeout_seconds, _LEAST_SECONDS)
        return {"short": self._timeout_seconds, "long": long, "none": float("inf")}[limit]
