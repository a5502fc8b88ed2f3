"""Names of Keras read from its files. Reference: Keras itself, imported."""

from __future__ import annotations

import contextlib
import inspect
import re
import subprocess
import sys

import keras
import pytest

from trainer_module.common import keras_names
from trainer_module.common.keras_names import Kind, check_keras_name
from trainer_module.config import TrainerConfig
from trainer_module.model.metrics import create_metric
from trainer_module.model.optimizers import _optimizer_class


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


def test_suggested_names_are_valid() -> None:
    for kind in KINDS:
        known = keras_names._known_names(kind)
        assert known is not None
        for name in known.choices:
            if kind == "optimizer":
                assert _optimizer_class(name)
            elif kind == "loss":
                assert keras.losses.get(name)
            elif kind == "activation":
                assert keras.activations.get(name)
            else:
                with contextlib.suppress(NeedsArguments):
                    metric(name)


class NeedsArguments(Exception):
    """A metric that is there, and not made from its name alone."""


def metric(name: str) -> keras.metrics.Metric:
    try:
        return create_metric(name, "binary")
    except ValueError as error:
        if "needs arguments" in str(error):
            raise NeedsArguments from None
        raise


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


def test_neither_keras_nor_tensorflow_is_imported() -> None:
    script = (
        "import sys; from trainer_module.config import TrainerConfig\n"
        "try: TrainerConfig(loss='bce2')\n"
        "except ValueError: print([n for n in ('keras', 'tensorflow') if n in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_unknown_layout_of_keras_files_skips_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    keras_names._known_names.cache_clear()
    monkeypatch.setitem(keras_names._FOLDERS, "loss", "somewhere_else")
    try:
        check_keras_name("loss", "bce2", field="f")
    finally:
        keras_names._known_names.cache_clear()
