"""tuner_fn as TFX's Tuner uses it: trials, their scores, and what the Trainer makes of the best."""

from __future__ import annotations

import itertools
import json
import math
import re

import pytest

from trainer_module import TrainerConfig, TunerConfig, run_fn, tuner_fn
from trainer_module.common.progress import (
    TrainingStep,
    TrialEnded,
    TrialFailed,
)
from trainer_module.tuning.hyperparameters import setting_values, with_hyperparameters
from trainer_module.tuning.tuner import SettingsTuner

TRAINER = {
    "label": "generous",
    "global_batch_size": 64,
    "micro_batch_size": 24,
    "epochs": 1,
    "optimizer": {"learning_rate": 0.01},
}
SEARCH = {
    "optimizer.learning_rate": {"min": 1e-3, "max": 3e-2, "sampling": "log"},
    "model.hidden_units": {"values": [[8], [16, 8]]},
    "optimizer.schedule": {"values": [None, {"name": "cosine"}]},
}


@pytest.fixture
def search(fn_args, tmp_path):
    """Searches as TFX's executor does, and returns the tuner."""

    def run(tuner, **trainer):
        args = fn_args(**{**TRAINER, **trainer})
        args.custom_config["tuner"] = tuner
        args.working_dir = str(tmp_path / "tuner")
        result = tuner_fn(args)
        result.tuner.search(**result.fit_kwargs)
        return result.tuner

    return run


def trials(tuner):
    """What TFX writes into tuner_results.json, best first."""
    found = tuner.oracle.get_best_trials(tuner.oracle.max_trials)
    return [(t.score, t.hyperparameters.values) for t in found if t.status == "COMPLETED"]


def as_tfx_writes(tuner):
    """What TFX's Trainer reads from best_hyperparameters.txt."""
    return json.loads(json.dumps(tuner.get_best_hyperparameters()[0].get_config()))


@pytest.mark.slow
def test_a_trial_is_a_plain_training_with_its_values(search, fn_args, progress_records):
    """Reference: run_fn with the same settings written out. Bit for bit."""
    tuner = search({"search": SEARCH, "trials": 2, "objective": "auc", "seed": 3})
    found = trials(tuner)
    assert len(found) == 2
    assert found[0][0] >= found[1][0]
    values = found[0][1]
    schedule = json.loads(values["optimizer.schedule"])
    args = fn_args(
        **{**TRAINER, "model": {"hidden_units": json.loads(values["model.hidden_units"])}}
    )
    optimizer = {"learning_rate": values["optimizer.learning_rate"], "schedule": schedule}
    args.custom_config["trainer"]["optimizer"] = optimizer
    assert run_fn(args).metrics["auc"] == found[0][0]
    # The same by the Trainer's `hyperparameters` channel.
    config = with_hyperparameters(TrainerConfig.parse(TRAINER), as_tfx_writes(tuner))
    assert config == TrainerConfig.parse(args.custom_config["trainer"])
    ended = [record for record in progress_records if isinstance(record, TrialEnded)]
    assert [record.trial for record in ended] == [(1, 2), (2, 2)]
    assert {record.score for record in ended} == {score for score, _ in found}
    assert ended[-1].best == found[0][0]
    assert ended[0].values["model.hidden_units"] in ([8], [16, 8])
    steps = [r.trial.number for r in progress_records if isinstance(r, TrainingStep) and r.trial]
    assert set(steps) == {1, 2}


def reached(folder, tuner, **trainer):
    """(score, values) of each trial in order, of trainings whose loss is a known function.

    The loss is lowest at a learning rate of 0.01, and lower the longer a trial is.
    """

    def train_trial(config, progress):
        rate = math.log10(config.optimizer.learning_rate)
        return {"loss": (rate + 2) ** 2 + 1 / (config.epochs or 1), "auc": 1.0}

    config = TrainerConfig.parse({**TRAINER, **trainer})
    tuning = TunerConfig.parse(tuner)
    tuning.check(config)
    found = SettingsTuner(config, tuning, train_trial, directory=str(folder))
    found.search()
    return [(t.score, t.hyperparameters.values) for t in found.oracle.trials.values()]


RATES = {"optimizer.learning_rate": {"min": 1e-4, "max": 1.0, "sampling": "log"}}


def test_seed_determines_the_trials(tmp_path):
    tried = [reached(tmp_path, {"search": SEARCH, "trials": 8, "seed": s}) for s in (0, 0, 1)]
    assert tried[0] == tried[1]
    rates = [{values["optimizer.learning_rate"] for _, values in found} for found in tried]
    assert len(rates[0]) == len(rates[2]) == 8
    assert not rates[0] & rates[2]
    assert all(1e-3 <= rate <= 3e-2 for rate in rates[0] | rates[2])


def test_a_grid_has_every_combination(tmp_path):
    ranges = {
        "clip_norm": {"values": [None, 0.5]},
        "non_finite": {"values": ["raise", "skip"]},
        "micro_batch_size": {"min": 16, "max": 64, "step": 2, "sampling": "log"},
    }
    found = reached(tmp_path, {"search": ranges, "algorithm": "grid"})
    settings = [tuple(setting_values(values).values()) for _, values in found]
    assert sorted(settings, key=str) == sorted(
        itertools.product([None, 0.5], ["raise", "skip"], [16, 32, 64]), key=str
    )
    assert len(reached(tmp_path, {"search": ranges, "algorithm": "grid", "trials": 5})) == 5


@pytest.mark.slow(15)
def test_diverged_trial_fails_and_the_search_continues(search, progress_records):
    ranges = {"optimizer.learning_rate": {"values": [1e30, 0.01]}}
    tuner = search({"search": ranges, "algorithm": "grid"}, optimizer={"name": "sgd"})
    assert [values["optimizer.learning_rate"] for _, values in trials(tuner)] == [0.01]
    failed = next(record for record in progress_records if isinstance(record, TrialFailed))
    assert failed.values == {"optimizer.learning_rate": 1e30}
    assert re.search("NaN|infinite", failed.error)


def test_invalid_searches_are_rejected_before_the_first_trial(search):
    for tuner, trainer, message in [
        (
            {"search": {"global_batch_size": {"min": 64, "max": 1024}}},
            {},
            r"global_batch_size=1024 exceeds the 600 training rows",
        ),
        (
            {"search": {"loss": {"values": ["mse", "no_loss"]}}, "objective": "auc"},
            {},
            r"'no_loss'",
        ),
        (
            {"search": SEARCH, "objective": "acu"},
            {},
            r"tuner.objective='acu' is not evaluated; did you mean 'auc'",
        ),
        (
            {"search": SEARCH},
            {"intra_op_threads": 3},
            r"intra_op_threads=3, but TensorFlow already runs in this process",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            search(tuner, **trainer)


def test_the_tuner_needs_a_search_and_an_eval_split(fn_args):
    args = fn_args(**TRAINER)
    with pytest.raises(ValueError, match=r'tuner_fn needs custom_config\["tuner"\]'):
        tuner_fn(args)
    args.custom_config["tuner"] = {"search": SEARCH}
    args.eval_files = []
    with pytest.raises(ValueError, match="compares trials on the eval split"):
        tuner_fn(args)


def test_search_runs_on_one_machine(fn_args, monkeypatch):
    """The trainer's `multi_worker` has the same scores; TF_CONFIG with several workers has none."""
    args = fn_args(**{**TRAINER, "strategy": "multi_worker"})
    args.custom_config["tuner"] = {"search": SEARCH}
    assert tuner_fn(args).tuner is not None
    cluster = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    with pytest.raises(ValueError, match=r"2 workers, and a search runs on one machine: unset"):
        tuner_fn(args)
