"""A line about every second, as text and as a record."""

from __future__ import annotations

import math
import time

from absl import logging

from trainer_module.actions.action import Action, EpochEnd, FitResult, LoopProgress


class ProgressLog(Action):
    """Writes one line about every second, with the same as a record for programs to read."""

    def __init__(
        self, every_seconds: float = 1.0, *, trial: tuple[int, int | None] | None = None
    ) -> None:
        """Creates the action.

        Args:
            every_seconds: Least time between two lines.
            trial: Number of the trial, from 1, and of trials, where training is one of several.
        """
        self.every_seconds = every_seconds
        self._prefix, self._also = "", {}
        if trial is not None:
            self._prefix = f"trial {trial[0]}/{trial[1] or '?'}: "
            self._also = {"trial": trial[0], "trials": trial[1]}
        self._last = -math.inf
        self._steps, self._rows, self._seconds = 0, 0, 0.0

    def on_loop(self, progress: LoopProgress) -> None:
        """Logs step, loss, rows per second and time left.

        The first loop also traces the graph: its time says nothing of what the rest will take.
        """
        first = self._last == -math.inf
        if not first:
            self._steps += progress.steps
            self._rows += progress.rows
            self._seconds += progress.seconds
        at_end = progress.step == progress.total_steps
        if time.monotonic() - self._last < self.every_seconds and not at_end:
            return
        rate = self._rows / self._seconds if self._seconds else None
        eta = None
        if progress.total_steps is not None and self._steps:
            eta = (progress.total_steps - progress.step) * self._seconds / self._steps
        self._last = time.monotonic()
        self._steps, self._rows, self._seconds = 0, 0, 0.0
        record = {
            "event": "train",
            **self._also,
            "step": progress.step,
            "total_steps": progress.total_steps,
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "loss": progress.loss,
            "examples_per_second": rate,
            "eta_seconds": eta,
        }
        logging.get_absl_logger().info(
            "%sstep %d/%s loss %.4f%s",
            self._prefix,
            progress.step,
            progress.total_steps or "?",
            progress.loss,
            "" if rate is None else f" {rate:.0f} examples/s",
            extra={"progress": record},
        )

    def on_epoch(self, end: EpochEnd) -> bool:
        """Logs the evaluation."""
        shown = "  ".join(f"{name} {value:.4f}" for name, value in end.metrics.items())
        if end.metrics:
            record = {"event": "eval", **self._also, "epoch": end.epoch, "metrics": end.metrics}
            logging.get_absl_logger().info(
                "%sepoch %d eval: %s", self._prefix, end.epoch, shown, extra={"progress": record}
            )
        return False

    def on_end(self, result: FitResult) -> None:
        """Logs how training ended."""
        skipped = {reason: count for reason, count in result.skipped.items() if count}
        logging.get_absl_logger().info(
            "%straining ended by %s after %d steps%s",
            self._prefix,
            result.stopped,
            result.steps,
            f", windows skipped: {skipped}" if skipped else "",
            extra={
                "progress": {
                    "event": "fit_end",
                    **self._also,
                    "stopped": result.stopped,
                    "steps": result.steps,
                    "skipped": result.skipped,
                }
            },
        )
