"""Handle SIGTERM, which platforms send before they reclaim a machine."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

EXIT_PREEMPTED = 143  # 128 + SIGTERM, as after a kill by SIGTERM; but a checkpoint was saved


class Preempted(SystemExit):
    """Training stopped at a step boundary after SIGTERM and saved a checkpoint of that step.

    As a SystemExit it ends the process with exit code 143 and no traceback.
    """

    def __init__(self, message: str) -> None:
        """Create the exception with a message that says what was saved."""
        super().__init__(EXIT_PREEMPTED)
        self.message = message

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class Preemption:
    """Record SIGTERM during a `with` block unless the program has its own handler.

    Outside the main thread it records nothing.
    """

    def __init__(self) -> None:
        """Start with no signal received."""
        self.asked = False
        self._is_installed = False

    def __enter__(self) -> Preemption:
        """Install the signal handler."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._is_installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the default handler and raise a signal that came after the last step boundary."""
        if self._is_installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._is_installed = False
            if self.asked and error is None:
                signal.raise_signal(signal.SIGTERM)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
