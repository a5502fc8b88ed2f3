"""Write a TensorBoard trace of some steps."""

from __future__ import annotations

import tensorflow as tf
from absl import logging

from trainer_module.loop.callbacks.callback import Callback, FitResult, LoopProgress
from trainer_module.options.loop_options import check_profiled_steps


class ProfileSteps(Callback):
    """Write a trace of the optimizer steps from `first` to `last` for TensorBoard's Profile tab.

    The loop ends a call of the graph before the first and after the last of them, so that the trace
    has no other steps; this changes no number. The trace is in `<directory>/plugins/profile`.
    Operations have the scopes step.forward, step.backward, step.reduction and step.update.

    Example:
        TrainingLoop(step, data, epochs=3, callbacks=[ProfileSteps("logs", 100, 110)]).fit()
    """

    on_chief_only = True

    def __init__(self, directory: str, first: int, last: int) -> None:
        """Check the steps.

        Args:
            directory: Folder of TensorBoard's logs.
            first: The first step of the trace, from 1.
            last: The last step of the trace, included; at most 1,000 steps.

        Raises:
            ValueError: The steps are in the wrong order, too many, or below 1.
        """
        try:
            self._first, self._last = check_profiled_steps((first, last))
        except ValueError as error:
            raise ValueError(f"first={first!r}, last={last!r}: {error}.") from None
        self._directory = directory
        self._step = 0
        self._is_open = self._is_done = False

    def steps_until_due(self, step: int) -> int | None:
        """Return the steps until the trace begins or ends; None after it."""
        self._step = step  # after a restart, no call of the graph has reported it yet
        return next((end - step for end in (self._first - 1, self._last) if end > step), None)

    def on_begin(self) -> None:
        """End a trace that an error left open."""
        self._stop()

    def on_loop_begin(self) -> None:
        """Start the trace if the next step belongs to it."""
        if self._is_done or self._is_open or not self._first <= self._step + 1 <= self._last:
            return
        try:
            tf.profiler.experimental.start(self._directory)
        except tf.errors.AlreadyExistsError:
            self._is_done = True
            logging.warning("No trace of steps: another profiler is active in this process.")
        else:
            self._is_open = True

    def on_loop(self, progress: LoopProgress) -> None:
        """End the trace after its last step."""
        self._step = progress.step
        if progress.step >= self._last:
            self._stop()

    def on_end(self, result: FitResult) -> None:
        """End the trace; warn if training ended before its first step."""
        self._stop()
        if result.steps < self._first:
            logging.warning(
                "No trace of the steps %d to %d: training ended after step %d.",
                *(self._first, self._last, result.steps),
            )

    def _stop(self) -> None:
        if self._is_open:
            tf.profiler.experimental.stop()
            self._is_open, self._is_done = False, True
            logging.info("Trace of steps: tensorboard --logdir %s", self._directory)
