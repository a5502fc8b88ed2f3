"""Names of Keras read from its files. Reference: Keras itself, imported."""

from __future__ import annotations

import inspect
import re

import keras
import pytest

from trainer_module.common.keras_names import Kind, check_keras_name
from trainer_module.config import TrainerConfig


def of_keras(kind: Kind) -> set[str]:
    """Every name that a maker of the trainer's may find: public ones and those of `get`."""
    if kind == "optimizer":
        base = keras.optimizers.Optimizer
        found = vars(keras.optimizers).items()
        return {name for name, c in found if inspect.isclass(c) and issubclass(c, base)}
    room = {"loss": keras.losses, "metric": keras.metrics, "activation": keras.activations}[kind]
    by_get = inspect.getmodule(room.get)
    assert by_get is not None
    names = {*vars(room), *vars(by_get)["ALL_OBJECTS_DICT"]}
    return {name for name in names if name[0] != "_" and name != "LossFunctionWrapper"}


KINDS: tuple[Kind, ...] = ("optimizer", "loss", "metric", "activation")


def test_names_that_keras_accepts_pass() -> None:
    for kind in KINDS:
        names = of_keras(kind)
        assert len(names) > 10
        for name in names:
            check_keras_name(kind, name, field="f")
            check_keras_name(kind, name.lower(), field="f")
            with pytest.raises(ValueError, match=f"is not a Keras {kind}; "):
                check_keras_name(kind, f"{name}x9", field="f")


def test_configuration_rejects_unknown_keras_names() -> None:
    for settings, message in [
        ({"optimizer": "adamm"}, "trainer.optimizer.name='adamm' is not a Keras optimizer; did"),
        ({"loss": "bce2"}, "trainer.loss='bce2' is not a Keras loss; did you mean 'bce'?"),
        (
            {"metrics": ["auc", "BinaryAcuracy"]},
            "'BinaryAcuracy' is not a Keras metric; did you mean 'binary_accuracy'?",
        ),
        ({"model": {"activation": "rellu"}}, "activation; did you mean 'relu'?"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            TrainerConfig.parse(settings)


def test_dotted_paths_are_not_checked() -> None:
    TrainerConfig(model_fn="mine.build", loss="mine.loss", metrics=("mine.Metric",)).model_copy()
    own_model = TrainerConfig.parse({"model_fn": "mine.build", "model": {"activation": "my own"}})
    assert own_model.model.activation == "my own"
