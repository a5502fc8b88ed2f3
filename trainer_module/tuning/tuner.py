"""KerasTuner's search over settings, with one exact-window training per trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import keras_tuner
import tensorflow as tf
from absl import logging
from keras_tuner.engine import base_tuner

from shared_core.nearest import nearest
from trainer_module.common.progress import TrialEnded, TrialFailed, TrialNumber, attached
from trainer_module.common.user_values import Mode, better_mode, is_better
from trainer_module.config import TrainerConfig
from trainer_module.loop.callback import Callback
from trainer_module.loop.progress_log import ProgressLog
from trainer_module.memory.micro_batch_size import MemoryBudgetError
from trainer_module.step.reports import NonFiniteError
from trainer_module.tuning.hyperparameters import (
    Setting,
    alternatives,
    as_choices,
    setting_values,
    type_of,
)
from trainer_module.tuning.tuner_config import TunerConfig

_TrainTrial = Callable[[TrainerConfig, Callback], Mapping[str, float]]


class SettingsTuner(base_tuner.BaseTuner):
    """Try settings of a training and keep each trial's result on the eval split.

        for each set of values that the algorithm proposes:
            score = train_trial(trainer with the values)[objective]

    A trial fails if it ends in NaN or runs out of device memory, and the search continues. Any
    other error ends the search. KerasTuner's files are in `directory`.
    """

    def __init__(
        self,
        trainer: TrainerConfig,
        tuning: TunerConfig,
        train_trial: _TrainTrial,
        *,
        directory: str,
    ) -> None:
        """Prepare the search.

        `train_trial` trains a configuration, reports its progress to the callback, and returns the
        metrics of the final model. `directory` is for files of KerasTuner.
        """
        self.trainer = trainer
        self.tuning = tuning
        self.train_trial = train_trial
        self.mode: Mode = better_mode(tuning.objective, tuning.mode, field="tuner.mode")
        space = _search_space(tuning)
        self.trials = tuning.most_trials
        if tuning.algorithm == "grid":
            size = math.prod(len(list(searched.values)) for searched in space.space)
            self.trials = min(size, self.trials or size)
        super().__init__(
            _oracle(tuning, space, self.mode, self.trials),
            directory=directory,
            project_name="tuner",
            overwrite=True,
        )
        self.oracle.verbose = 0

    def run_trial(
        self, trial: keras_tuner.engine.trial.Trial, *fit_args: object, **fit_kwargs: object
    ) -> dict[str, float]:
        """Train with the trial's values and return {objective: value}."""
        number = int(trial.trial_id) + 1
        which = TrialNumber(number, self.trials)
        values = setting_values(trial.hyperparameters.values)
        config = self.tuning.trial_config(self.trainer, values)
        try:
            metrics = self.train_trial(config, ProgressLog(trial=which))
            if self.tuning.objective not in metrics:
                raise ValueError(
                    f"tuner.objective={self.tuning.objective!r} is not evaluated; "
                    f"{nearest(self.tuning.objective, metrics)}"
                )
            score = metrics[self.tuning.objective]
            if math.isnan(score):
                raise NonFiniteError(_why_nan(metrics, self.tuning.objective))
        except (NonFiniteError, MemoryBudgetError, tf.errors.ResourceExhaustedError) as error:
            self._log_trial(TrialFailed(which, values, str(error)), f"failed: {error}")
            raise keras_tuner.errors.FailedTrialError(str(error)) from error
        except Exception as error:
            raise keras_tuner.errors.FatalError(f"trial {number} with {values}: {error}") from error
        best, of = self._best(score, number)
        shown = f"{self.tuning.objective} {score:.4f}, best {best:.4f} of trial {of}"
        ended = TrialEnded(
            which, self.tuning.objective, values, score, best, of, metrics=dict(metrics)
        )
        self._log_trial(ended, shown)
        return {self.tuning.objective: score}

    def on_search_end(self) -> None:
        """Check that at least one trial has a score."""
        trials = list(self.oracle.trials.values())
        if not any(trial.status == "COMPLETED" for trial in trials):
            last = trials[-1].message.strip().splitlines()[-1] if trials else ""
            raise ValueError(
                f"tuner.search: all {len(trials)} trials failed, the last with {last!r}"
            )
        # TFX lists this many results, and fails if there is no limit.
        self.oracle.max_trials = len(trials)

    def _best(self, score: float, number: int) -> tuple[float, int]:
        for trial in self.oracle.get_best_trials(1):
            if trial.status == "COMPLETED" and not is_better(score, trial.score, mode=self.mode):
                return trial.score, int(trial.trial_id) + 1
        return score, number

    def _log_trial(self, record: TrialEnded | TrialFailed, shown: str) -> None:
        logging.get_absl_logger().info(
            "trial %d/%s: %s; with %s",
            record.trial.number,
            record.trial.of or "?",
            shown,
            ", ".join(f"{path}={value!r}" for path, value in record.values.items()),
            extra=attached(record),
        )


def _search_space(tuning: TunerConfig) -> keras_tuner.HyperParameters:
    """Return the ranges as KerasTuner's hyperparameters, named by the settings' paths."""
    space = keras_tuner.HyperParameters()
    for path, searched in tuning.search.items():
        if searched.values is not None:
            space.Choice(path, as_choices(searched.values))
            continue
        declared = alternatives(type_of(path))
        given = {type(number) for number in (searched.min, searched.max, searched.step)}
        has_fractions = float in declared or (object in declared and float in given)
        number = space.Float if has_fractions else space.Int
        number(path, searched.min, searched.max, step=searched.step, sampling=searched.sampling)
    return space


def _why_nan(metrics: Mapping[str, float], objective: str) -> str:
    if math.isnan(metrics["loss"]):
        return f"{objective} is NaN: search smaller learning rates, or set trainer.clip_norm."
    return (
        f"{objective} is undefined for the eval rows, although their loss is a number: for "
        "example, all labels are of one class, or no row is predicted positive. Choose another "
        "tuner.objective, such as loss, or another split."
    )


def _oracle(
    tuning: TunerConfig,
    space: keras_tuner.HyperParameters,
    mode: str,
    trials: int | None,
) -> keras_tuner.Oracle:
    options: dict[str, Setting] = {
        "objective": keras_tuner.Objective(tuning.objective, mode),
        "hyperparameters": space,
        # KerasTuner draws a random seed if it gets 0, and counts up from the seed: the draws of
        # two seeds do not overlap if they are far apart.
        "seed": 1 + tuning.seed * 1_000_003 % (2**31 - 2),
        # on_search_end counts failures.
        "max_consecutive_failed_trials": (trials or 10**9) + 1,
    }
    oracles = keras_tuner.oracles
    kinds = {
        "random": oracles.RandomSearchOracle,
        "grid": oracles.GridSearchOracle,
        "bayesian": oracles.BayesianOptimizationOracle,
    }
    return kinds[tuning.algorithm](max_trials=trials, **options)
