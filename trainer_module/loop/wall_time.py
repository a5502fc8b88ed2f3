"""Divide the wall time of a training into parts, as the host sees them."""

from __future__ import annotations

import math
import time


class WallTime:
    """Divide the wall time from one progress report to the next into parts that add up to it.

    - `reading`: the data is opened, or the host waits for a batch. The update of the window before
      may run meanwhile.
    - `computing`: the rest of the calls of the graph. On a GPU, operations of the call run after
      the host has started them; the call ends when its loss is known.
    - `other`: between the calls: evaluation, checkpoints, callbacks, the agreement of workers.

    Example:
        times = WallTime()
        report = train_step.run(iterator, 100)
        times.add_call(0.5, reading=report.reading_seconds)
        times.divide()  # {"reading": 0.1, "computing": 0.4, "other": 0.02}
    """

    def __init__(self) -> None:
        """Start the first interval now."""
        self.restart()

    def restart(self) -> None:
        """Start an interval now, and forget the one before."""
        self._start = time.monotonic()
        self._opening = self._calls = self._waited = 0.0

    def add_opening(self, seconds: float) -> None:
        """Add the time of opening the data."""
        self._opening += seconds

    def add_call(self, seconds: float, *, reading: float) -> None:
        """Add a call of the graph.

        Args:
            seconds: Its wall time.
            reading: The part of it in which it waited for batches; NaN if that is not measured.
        """
        self._calls += seconds
        # TensorFlow measures with another clock, which may be set meanwhile.
        self._waited += reading if math.isnan(reading) else min(max(reading, 0.0), seconds)

    def divide(self) -> dict[str, float]:
        """Return the seconds of each part, and start the next interval.

        Without `reading` if it is not measured; `other` includes opening the data then.
        """
        total = time.monotonic() - self._start
        if math.isnan(self._waited):
            parts = {"computing": self._calls, "other": total - self._calls}
        else:
            reading = self._opening + self._waited
            parts = {
                "reading": reading,
                "computing": self._calls - self._waited,
                "other": total - self._opening - self._calls,
            }
        self.restart()
        return parts
