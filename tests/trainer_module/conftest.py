"""Several CPU devices in one process, small models, and a Transform output made with plain TFT."""

from __future__ import annotations

import json
import logging as std_logging
import types
from pathlib import Path

import full_batch
import keras
import pytest
import small_transform
import tensorflow as tf
from absl import logging

from trainer_module.common.progress import progress_of
from trainer_module.devices.strategies import configure_logical_devices, create_strategy
from trainer_module.window import spec as passes

# What holds the assertions of several test modules (tests/gpu has some of them).
pytest.register_assert_rewrite("exactness")

# Before the first operation of the process: later it can no longer be changed.
LOGICAL_DEVICES = 4
configure_logical_devices(LOGICAL_DEVICES)


@pytest.fixture(autouse=True)
def _seeded():
    """The same initial weights each time: a tolerance must not be met by luck, nor missed."""
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="session")
def strategies():
    """Strategies by name: none, one_device, mirrored2, mirrored3."""
    return {
        "none": tf.distribute.get_strategy(),
        "one_device": create_strategy("one_device"),
        "mirrored2": create_strategy("mirrored", logical_devices=2),
        "mirrored3": create_strategy("mirrored", logical_devices=3),
    }


@pytest.fixture
def passes_of_one(monkeypatch):
    """Compute each micro-batch in a separate pass; small models would pass four at a time."""
    monkeypatch.setitem(passes.LIMITS, "CPU", passes.LIMITS["CPU"]._replace(micro_batches=1))


@pytest.fixture
def warnings(monkeypatch):
    """Logged warnings and errors."""
    lines: list[str] = []
    for name in ("warning", "error"):
        monkeypatch.setattr(logging, name, lambda text, *values: lines.append(text % values))
    return lines


@pytest.fixture
def progress_records():
    """Records of progress that are logged while the test runs."""
    records = []

    class Keep(std_logging.Handler):
        def emit(self, record):
            if found := progress_of(record):
                records.append(found)

    handler, logger = Keep(), logging.get_absl_logger()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(std_logging.INFO)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def float64():
    """Models built in this test compute in float64."""
    with full_batch.precision("float64"):
        yield


@pytest.fixture(scope="session")
def transformed(tmp_path_factory):
    """A plain Transform output: `graph` (folder), `train` and `eval` (file patterns), `raw`."""
    folder = tmp_path_factory.mktemp("transformed")
    return small_transform.run_transform(folder, small_transform.preprocessing_fn)


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """A Transform output with packed features and a layout that names them."""
    folder = tmp_path_factory.mktemp("packed")
    made = small_transform.run_transform(folder, small_transform.packed_preprocessing_fn)
    assets = Path(made.graph) / "transform_fn" / "assets"
    (assets / "feature_layout").write_text(json.dumps(small_transform.PACKED_LAYOUT))
    return made


@pytest.fixture
def fn_args(transformed, tmp_path):
    """Returns a function that makes TFX's FnArgs for a configuration."""

    def make(data=None, **trainer):
        data = data or transformed
        return types.SimpleNamespace(
            train_files=[data.train],
            eval_files=[data.eval],
            transform_output=data.graph,
            model_run_dir=str(tmp_path / "run"),
            serving_model_dir=str(tmp_path / "serving"),
            train_steps=0,
            custom_config={"trainer": trainer},
        )

    return make
