"""Log the progress about once per second, as text and as a record."""

from __future__ import annotations

import logging as standard_logging
import math
import sys
import time

from absl import logging

from trainer_module.common.progress import (
    EvaluationEnded,
    Progress,
    TrainingEnded,
    TrainingStep,
    TrialNumber,
    attached,
    metric_text,
)
from trainer_module.loop.callback import Callback, EpochEnd, FitResult, LoopProgress


class ProgressLog(Callback):
    """Log one line about once per second, with the same data as a record for programs.

        step 1200/5000 epoch 3/10 loss 0.2841 81250 examples/s, 0:47 left

    The lines are logged with absl, like TFX's. If no handler would show them, as in a program that
    has not set up logging, they are written to standard error.
    """

    on_chief_only = True

    def __init__(
        self, every_seconds: float = 1.0, *, trial: tuple[int, int | None] | None = None
    ) -> None:
        """Create the callback.

        Args:
            every_seconds: Shortest time between two lines.
            trial: Number of the trial, from 1, and number of trials, if training is one of several.
        """
        self.every_seconds = every_seconds
        self._trial = None if trial is None else TrialNumber(*trial)
        self._prefix = "" if trial is None else f"trial {trial[0]}/{trial[1] or '?'}: "
        self._last = -math.inf
        self._steps, self._rows, self._seconds = 0, 0, 0.0
        self._noise_scale, self._global_batch = math.nan, math.nan

    def on_loop(self, progress: LoopProgress) -> None:
        """Log step, loss, rows per second and time left.

        The first call also traces the graph, so its duration is not used to estimate the time left.
        """
        if progress.steps:
            self._noise_scale = progress.noise_scale
            self._global_batch = progress.rows / progress.steps
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
        record = TrainingStep(
            step=progress.step,
            total_steps=progress.total_steps,
            epoch=progress.epoch,
            epochs=progress.epochs,
            loss=progress.loss,
            examples_per_second=rate,
            eta_seconds=eta,
            trial=self._trial,
        )
        epochs = f" epoch {progress.epoch}/{progress.epochs}" if progress.epochs else ""
        speed = "" if rate is None else f" {rate:.0f} examples/s"
        left = "" if eta is None else f", {_duration(eta)} left"
        _log_line(
            f"{self._prefix}step {progress.step}/{progress.total_steps or '?'}{epochs} "
            f"loss {progress.loss:.4f}{speed}{left}",
            record,
        )

    def on_epoch(self, end: EpochEnd) -> bool:
        """Log the evaluation."""
        shown = "  ".join(f"{name} {metric_text(value)}" for name, value in end.metrics.items())
        if end.metrics:
            record = EvaluationEnded(end.epoch, end.metrics, self._trial)
            _log_line(f"{self._prefix}epoch {end.epoch} eval: {shown}", record)
        return False

    def on_end(self, result: FitResult) -> None:
        """Log how training ended."""
        skipped = {reason: count for reason, count in result.skipped.items() if count}
        advice = _batch_size_advice(self._noise_scale, self._global_batch)
        record = TrainingEnded(
            result.stopped,
            result.steps,
            result.skipped,
            self._trial,
            advice,
            noise_scale=_known(self._noise_scale),
            global_batch=_known(self._global_batch),
        )
        ended = f"training ended by {result.stopped} after {result.steps} steps"
        left_out = f", windows skipped: {skipped}" if skipped else ""
        advice = f"; {advice}" if advice else ""
        _log_line(f"{self._prefix}{ended}{left_out}{advice}", record)


def _batch_size_advice(noise_scale: float, global_batch: float) -> str:
    """Return what twice the global batch would save; empty if the noise scale is not known.

    To reach a given loss takes S(B) = S_min (1 + noise_scale / B) steps of B rows (McCandlish et
    al., 2018, eq. 2.11), at the best learning rate for B.
    """
    if math.isnan(noise_scale) or not global_batch > 0:
        return ""
    share = (1 + noise_scale / (2 * global_batch)) / (1 + noise_scale / global_batch)
    return (
        f"gradient noise scale {noise_scale:,.0f} rows, global batch {global_batch:,.0f}: with "
        f"twice the batch, about {share:.0%} of the steps reach the same loss (50% at best)"
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _log_line(text: str, record: Progress) -> None:
    """Log a line, or write it to standard error if no handler would show it."""
    logger = logging.get_absl_logger()
    logger.info("%s", text, extra=attached(record))
    if not _is_handled(logger):
        print(text, file=sys.stderr, flush=True)


def _is_handled(logger: standard_logging.Logger) -> bool:
    """Return whether a handler of a logger accepts lines of level INFO."""
    if not logger.isEnabledFor(standard_logging.INFO):
        return False
    each: standard_logging.Logger | None = logger
    while each is not None:
        if any(handler.level <= standard_logging.INFO for handler in each.handlers):
            return True
        each = each.parent if each.propagate else None
    return False


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
