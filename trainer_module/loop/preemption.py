"""SIGTERM: what a platform sends before it takes a machine away."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any

EXIT_PREEMPTED = 143  # 128 + SIGTERM, as if it had ended the process; here it has saved before


class Preempted(SystemExit):
    """Training stopped at a step boundary because of SIGTERM, with a checkpoint of that step.

    A SystemExit, so that the process ends by it with code 143 and no traceback.
    """

    def __init__(self, words: str) -> None:
        """Take what was saved."""
        super().__init__(EXIT_PREEMPTED)
        self.words = words

    def __str__(self) -> str:
        """Return what was saved."""
        return self.words


class Preemption:
    """Note SIGTERM for the length of a `with` block, where nothing else listens to it.

    Outside the main thread, or if the program has its own handler, it notes nothing.
    """

    def __init__(self) -> None:
        """Nothing was asked for yet."""
        self.asked = False
        self._listens = False

    def __enter__(self) -> Preemption:
        """Begin to listen."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)
            self._listens = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the signal to the system again; one that came too late for a boundary counts."""
        if self._listens:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._listens = False
            if self.asked and error is None:
                signal.raise_signal(signal.SIGTERM)

    def _note(self, number: int, frame: Any) -> None:
        self.asked = True
