"""Valid searches and the errors of invalid ones."""

from __future__ import annotations

import pytest

from trainer_module import TrainerConfig, TunerConfig

TRAINER = TrainerConfig(epochs=2, metrics=("auc",))


def test_values_get_the_type_of_the_setting():
    search = {
        "optimizer.learning_rate": {"min": "1e-4", "max": 1, "sampling": "log"},  # YAML's 1e-4
        "micro_batch_size": {"min": 16.0, "max": 64.0, "step": 2.0, "sampling": "log"},
        "clip_norm": {"values": [None, "1e-1", 1]},
        "optimizer.options.beta_1": {"min": 0.5, "max": 1},
        "model.hidden_units": {"values": [[], [8, 8]]},
    }
    found = TunerConfig.parse({"search": search}).search
    assert repr(found["optimizer.learning_rate"].ends) == "(0.0001, 1.0)"
    assert repr(found["micro_batch_size"].ends) == "(16, 64)"
    assert repr(found["micro_batch_size"].step) == "2"
    assert found["clip_norm"].values == (None, 0.1, 1.0)
    assert found["optimizer.options.beta_1"].ends == (0.5, 1)
    assert found["model.hidden_units"].values == ([], [8, 8])
    for less in ({}, {"exclude_defaults": True}):
        again = TunerConfig.parse({"search": search}).model_dump(mode="json", **less)
        assert TunerConfig.parse(again) == TunerConfig.parse({"search": search})


def test_invalid_ranges_are_rejected():
    for search, message in [
        ({}, r"tuner.search: .* at least 1 item"),
        ({"optimizer.lerning_rate": {"values": [1]}}, r"did you mean 'optimizer.learning_rate'\?"),
        ({"clip_norm": {"mni": 1, "max": 2}}, r"clip_norm.mni is not a setting: .*'min'"),
        (
            {"clip_norm": {"min": 1}},
            r"tuner.search.clip_norm: give values: \[...\], or min and max",
        ),
        ({"clip_norm": {"min": 2, "max": 1}}, r"clip_norm: min=2 is not below max=1"),
        ({"clip_norm": {"values": []}}, r"clip_norm.values=\[\]: .*at least 1 item"),
        ({"model.dropout": {"min": 0, "max": 0.5, "sampling": "log"}}, r"log needs min above 0"),
        ({"seed": {"min": 1, "max": 9, "step": 1, "sampling": "log"}}, r"step=1 is a ratio"),
        ({"optimizer.name": {"min": 1, "max": 9}}, r"optimizer.name is not a number: give values"),
        ({"clip_norm": {"values": ["much"]}}, r"clip_norm='much': use a number"),
        ({"label": {"values": ["a", "b"]}}, r"label cannot be searched: trials that differ in it"),
    ]:
        with pytest.raises(ValueError, match=message):
            TunerConfig.parse({"search": search})


RATES = {"optimizer.learning_rate": {"values": [0.1, 0.01]}}


def test_invalid_settings_are_rejected():
    for tuner, message in [
        ({"epochs": 1, "steps": 2}, r"epochs=1 and steps=2: give one of them"),
        ({"algorithm": "annealing"}, r"tuner.algorithm='annealing'"),
        ({"trails": 3}, r"tuner.trails is not a setting: did you mean 'trials'\?"),
    ]:
        with pytest.raises(ValueError, match=message):
            TunerConfig.parse({"search": RATES, **tuner})


def test_search_that_contradicts_the_training_is_rejected():
    for tuner, message in [
        ({"objective": "acu"}, r"tuning.objective='acu' is not evaluated; did you mean 'auc'\?"),
        (
            {"search": {"loss": {"values": ["mse", "mae"]}}},
            r"training.loss is searched, and tuning.objective='loss' is not comparable",
        ),
        (
            {"search": {"optimizer.learning_rate": {"values": [0.1, -1]}}},
            r"tuning.search: training.optimizer.learning_rate=-1.0: use a number above 0",
        ),
        (
            # 512 fits neither alone nor with the other's smallest value.
            {
                "search": {
                    "global_batch_size": {"values": [128, 512]},
                    "micro_batch_size": {"min": 16, "max": 256},
                }
            },
            r"training.micro_batch_size=256 exceeds global_batch_size=128",
        ),
    ]:
        tuning = TunerConfig.parse({"search": RATES, **tuner})
        with pytest.raises(ValueError, match=message):
            tuning.check(TRAINER, section="training", own="tuning")


def test_tuner_sets_the_length_of_a_trial():
    own = TunerConfig.parse({"search": RATES, "steps": 5})
    assert (own.trial_config(TRAINER, {}).epochs, own.trial_config(TRAINER, {}).steps) == (None, 5)
    trainers = TunerConfig.parse({"search": RATES})
    assert trainers.trial_config(TRAINER, {}) == TRAINER
    values = {"optimizer.learning_rate": 0.5}
    assert trainers.trial_config(TRAINER, values).optimizer.learning_rate == 0.5


def test_objectives_of_unknown_direction_need_a_mode():
    trainer = TrainerConfig(epochs=2, metrics=("my_metrics.gini",))
    with pytest.raises(ValueError, match=r"tuner.mode='auto': .* larger 'gini'"):
        TunerConfig.parse({"search": RATES, "objective": "gini"}).check(trainer)
    TunerConfig.parse({"search": RATES, "objective": "gini", "mode": "max"}).check(trainer)
