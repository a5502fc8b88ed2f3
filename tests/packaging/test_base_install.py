"""`pip install .` without extras: the trainer works alone, the rest says which extra it lacks.

The wheel and its base dependencies as a lock file pins them, in a separate environment:
nothing of the developer's .venv is seen.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = [sys.executable, "-m", "uv"]
BASE = "1.16" if sys.version_info < (3, 11) else "1.21"
"""TF 2.21 does not bring tensorboard, TF 2.16 does: the newer stack shows more."""

PROGRAM = """
import importlib, importlib.resources, json
import keras, numpy as np, tensorflow as tf
import trainer_module
from trainer_module import ProgressLog, TensorBoardScalars, TrainingLoop, TrainStep

PACKAGES = ("trainer_module", "transform", "components", "pipeline")
lacking, there = {}, []
for package in PACKAGES:
    module = importlib.import_module(package)
    for name in module.__all__:
        try:
            getattr(module, name)
            there.append(f"{package}.{name}")
        except ModuleNotFoundError as error:
            lacking[f"{package}.{name}"] = str(error)

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(80, 3)).astype("float32")
y = x @ np.array([[1.0], [-2.0], [0.5]], "float32")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
step = TrainStep(model, keras.optimizers.SGD(0.1), "mean_squared_error", micro_batch_size=3)
rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
result = TrainingLoop(step, rows, epochs=1, callbacks=[ProgressLog()]).fit()
model.export("exported", verbose=False)
exported = tf.saved_model.load("exported")
try:
    TensorBoardScalars("logs")
    tensorboard = None
except ModuleNotFoundError as error:
    tensorboard = str(error)
print(json.dumps({
    "version": trainer_module.__version__,
    "typed": [n for n in PACKAGES if importlib.resources.files(n).joinpath("py.typed").is_file()],
    "templates": sorted(
        each.name
        for each in importlib.resources.files("pipeline.page")
        .joinpath("templates").iterdir()
    ),
    "lacking": lacking,
    "there": there,
    "steps": result.steps,
    "difference": float(abs(exported.serve(x) - model(x)).numpy().max()),
    "tensorboard": tensorboard,
}))
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it; its programs run in a separate folder."""

    bin: Path
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
        }
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Installed:
    folder = tmp_path_factory.mktemp("base")
    wheel = [*UV, "build", "--wheel", "--no-build-isolation", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(wheel, check=True, capture_output=True)
    # uv does not read pip's settings.
    names = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_CERT": "SSL_CERT_FILE"}
    index = {uv: os.environ[pip] for pip, uv in names.items() if pip in os.environ}
    index |= {"UV_SYSTEM_CERTS": "true"}  # which pip trusts by default
    venv = folder / "venv"
    subprocess.run([*UV, "venv", "--python", sys.executable, str(venv)], check=True)
    lock = ROOT / "requirements" / f"stack-{BASE}" / "lock.txt"
    done = subprocess.run(
        [
            *(*UV, "pip", "install", "--python", str(venv / "bin" / "python")),
            *("--constraints", str(lock), str(*folder.glob("*.whl"))),
        ],
        env=index | os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "error sending request" in done.stderr.lower():
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return Installed(venv / "bin", folder)


@pytest.fixture(scope="module")
def seen(installed) -> dict[str, Any]:
    """What PROGRAM saw."""
    done = installed.run("python", "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_readme_names_every_extra():
    named = re.findall(r"\.\[(\w+)\]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(
        {*metadata("tfx-largebatch").get_all("Provides-Extra")} - {"dev"}
    )


def test_the_index_gets_metadata_without_links_into_the_repository():
    found = metadata("tfx-largebatch")
    assert found["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in found.get_all("Classifier")
    assert found["Author"]
    assert found["Keywords"]
    page = found["Description"] or found.get_payload()
    assert "# tfx-largebatch" in page
    assert "See a run, and runs side by side" in page  # the text of a link to docs/
    assert re.findall(r"\]\((?!https?:)[^)]*\)", page) == []


@pytest.mark.slow
def test_the_wheel_has_small_lock_files_of_both_stacks(installed):
    with zipfile.ZipFile(*installed.folder.glob("*.whl")) as wheel:
        sizes = {each.filename: each.file_size for each in wheel.infolist()}
    folder = "pipeline/image/requirements/"
    stacks = {name.removeprefix(folder).split("/")[0] for name in sizes if name.startswith(folder)}
    assert stacks == {"stack-1.16", "stack-1.21"}
    assert sum(n for name, n in sizes.items() if name.startswith(folder)) < 250_000


@pytest.mark.slow
def test_the_wheel_has_every_template(seen):
    folder = ROOT / "pipeline" / "page" / "templates"
    assert seen["templates"] == sorted(each.name for each in folder.iterdir()) != []


@pytest.mark.slow
def test_every_name_is_there_or_says_which_extra_it_needs(seen):
    lacking = seen["lacking"]
    assert not [name for name in lacking if name.startswith("trainer_module")]
    assert {
        "trainer_module.TrainingLoop",
        "trainer_module.run_fn",
        "trainer_module.tuner_fn",
        "trainer_module.TensorBoardScalars",
        "components.NormalizationLimits",
        "pipeline.PipelineConfig",
        "transform.FeatureSpec",
    } <= set(seen["there"])
    for name, message in lacking.items():
        extra = "pipeline" if name.startswith("pipeline") else "tfx"
        assert message.startswith(f"{name} needs ")
        assert message.endswith(f"not installed: uv pip install 'tfx-largebatch[{extra}]'")
    assert "needs tfx," in lacking["components.create_trainer"]
    assert "needs tensorflow_transform," in lacking["transform.preprocessing_fn"]
    assert "needs yaml," in lacking["pipeline.load_config"]


@pytest.mark.slow
def test_the_wheel_says_its_version_and_that_it_is_typed(seen):
    assert seen["version"] == metadata("tfx-largebatch")["Version"]
    assert seen["typed"] == ["trainer_module", "transform", "components", "pipeline"]


@pytest.mark.slow
def test_ten_windows_are_trained_and_exported(installed, seen):
    assert seen["steps"] == 10
    assert seen["difference"] < 1e-6  # of the exported model's outputs; float32
    assert (installed.folder / "epochs.csv").read_text().count("\n") == 2
    if BASE == "1.21":
        assert seen["tensorboard"] == (
            "TensorBoardScalars needs tensorboard, which is not installed: uv pip install "
            "'tfx-largebatch[tensorboard]', or leave out TensorBoardScalars (tensorboard: false)."
        )


@pytest.mark.slow
def test_the_console_script_says_which_extra_it_needs(installed):
    done = installed.run("tfx-largebatch", "--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "The command line needs apache-beam, rich-click, tfx, pyyaml: "
        "uv pip install 'tfx-largebatch[pipeline]'."
    )
