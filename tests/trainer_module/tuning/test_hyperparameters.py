"""Settings by path, and values on their way through KerasTuner and back."""

from __future__ import annotations

import json

import keras_tuner
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_module.config import TrainerConfig
from trainer_module.tuning.hyperparameters import (
    _value_at,
    as_choices,
    setting_values,
    with_hyperparameters,
    with_values,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_any_values_come_back_from_keras_tuner_as_they_were(values):
    space = keras_tuner.HyperParameters()
    space.Choice("setting", as_choices(values))
    written = json.loads(json.dumps(space.get_config()))  # as TFX's Tuner writes it
    choices = written["space"][0]["config"]["values"]
    found = [setting_values({"setting": choice})["setting"] for choice in choices]
    assert found == values
    # 1 == 1.0 == True for Python, not for a configuration; numbers of one list may become floats.
    numbers = {type(value) for value in values} <= {int, float}
    assert numbers or [type(v) for v in found] == [type(v) for v in values]


def test_values_take_the_places_of_their_paths():
    config = TrainerConfig(steps=3, model_fn="my_model.build")
    values = {
        "optimizer.learning_rate": 0.5,
        "optimizer.options.nesterov": True,
        "optimizer.schedule.name": "cosine",  # in a section that is null
        "model.hidden_units": [8],
        "model.options.heads": 4,
    }
    changed = with_values(config, values)
    assert changed.optimizer.learning_rate == 0.5
    assert changed.optimizer.options == {"nesterov": True}
    assert changed.optimizer.schedule is not None
    assert changed.optimizer.schedule.name == "cosine"
    assert changed.model.hidden_units == (8,)
    assert _value_at(changed, "model.options.heads") == 4
    assert _value_at(config, "optimizer.schedule.name") is None
    assert with_values(config, {}) == config == TrainerConfig(steps=3, model_fn="my_model.build")


def test_a_path_that_leads_nowhere_is_refused():
    for path in ["optimizer.lr", "clip_norm.x", "nothing", "model.hidden_units.0"]:
        with pytest.raises(ValueError, match=rf"trainer.{path} is not a setting: "):
            with_values(TrainerConfig(epochs=1), {path: 1})


def test_hyperparameters_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match=r"do not fit the Trainer: .*clip_norm=-1: use a value greater"
    ):
        with_hyperparameters(TrainerConfig(epochs=1), {"values": {"clip_norm": -1}})
    with pytest.raises(ValueError, match="have no 'values'"):
        with_hyperparameters(TrainerConfig(epochs=1), {"learning_rate": 0.1})
