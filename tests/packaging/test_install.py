"""The commands of README.md's "Install" in a clean environment, and its table of TFX versions.

The first command brings the trainer, which works alone; all else says which extra it lacks. In CI,
Debian 12 with TFX 1.16 here, and Debian 13 with TFX 1.21 in the image of `make test-1.21`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Install\n")[2].partition("\n## ")[0]
CREATE, *INSTALLS = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)[0].splitlines()
ROWS = re.findall(r"^\| glibc 2\.(\d+) or newer.*?\| (.*) \|$", SECTION, re.MULTILINE)
# Answer of the table -> one machine that gets it: (glibc, Python).
MACHINES = {
    cell: (glibc, python)
    for glibc, cells in ROWS
    for python, cell in zip(("3.10", "3.11", "3.13"), cells.split(" | "), strict=True)
}
STACK = "1.16"
if int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[1]) >= 39 and sys.version_info >= (3, 11):
    STACK = "1.21"
# uv does not read pip's settings. It needs no other Python to resolve for one.
NAMES = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_CERT": "SSL_CERT_FILE"}
INDEX = {uv: os.environ[pip] for pip, uv in NAMES.items() if pip in os.environ}
ENVIRONMENT = {"UV_SYSTEM_CERTS": "true", "UV_PYTHON_DOWNLOADS": "never"} | INDEX | os.environ
# The second program reads the bytecode that the first one compiles.
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)

ALONE = """
import importlib, json, sys
import keras, numpy as np, tensorflow as tf
import trainer_module
from trainer_module import ProgressLog, TensorBoardScalars, TrainingLoop, TrainStep

lacking, there = {}, []
for package in ("trainer_module", "transform", "components", "pipeline"):
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
sys.modules["tensorboard"] = None  # TF 2.16 brings it, TF 2.21 does not
try:
    TensorBoardScalars("logs")
except ModuleNotFoundError as error:
    lacking["tensorboard"] = str(error)
print(json.dumps({
    "version": trainer_module.__version__,
    "lacking": lacking,
    "there": there,
    "steps": result.steps,
    "difference": float(abs(exported.serve(x) - model(x)).numpy().max()),
}))
"""
WHOLE = """
import trainer_module, transform, components, pipeline
for package in (trainer_module, transform, components, pipeline):
    for name in package.__all__:
        getattr(package, name)
import trainer_module.tfx.run, tfx
print(tfx.__version__)
"""


def skip_without_index(stderr: str) -> None:
    if "error sending request" in stderr.lower():
        pytest.skip(f"no package index: {stderr.splitlines()[-1]}")


@pytest.fixture(scope="module")
def resolutions() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Answer -> what resolves for its machine; they wait for the index, so all run at once."""
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header"]
    started = {}
    for cell, (glibc, python) in MACHINES.items():
        machine = ["--python-version", python, "--python-platform", f"x86_64-manylinux_2_{glibc}"]
        started[cell] = subprocess.Popen(
            [*uv, *machine, "--extra", "tfx", "pyproject.toml"],
            env=ENVIRONMENT,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    yield started
    for process in started.values():
        process.kill()


class Installed(NamedTuple):
    """An environment as the first command of the page leaves it, and as all do.

    Attributes:
        folder: Where programs ran.
        packages: `site-packages` of the environment.
        alone: What the program ALONE printed, after the first command.
        help_alone: `tfx-largebatch --help`, after the first command.
        whole: WHOLE and `tfx-largebatch --help`, after all of them.
    """

    folder: Path
    packages: Path
    alone: dict[str, Any]
    help_alone: subprocess.CompletedProcess[str]
    whole: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def installed(resolutions, tmp_path_factory) -> Installed:
    """Runs the commands with the tested versions."""
    folder = tmp_path_factory.mktemp("installed")
    lock = ROOT / "requirements" / f"stack-{STACK}" / "lock.txt"
    first, *others = (f"{line.partition(' #')[0]} -c {lock}" for line in INSTALLS)

    def run(*lines: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", "-c", "\n".join(["set -e", *lines])],
            env=ENVIRONMENT,
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        skip_without_index(done.stderr if done.returncode else "")
        return done

    python = f'python3() {{ {sys.executable} "$@"; }}'
    made = run(python, CREATE.replace("my-env", f"{folder}/my-env"), first)
    assert made.returncode == 0, made.stderr
    activate = f". {folder}/my-env/bin/activate"
    alone = run(activate, f"cd {folder}", f"python -c '{ALONE}'")
    assert alone.returncode == 0, alone.stderr
    help_alone = run(activate, "tfx-largebatch --help")
    programs = (f"cd {folder}", f"python -c '{WHOLE}'", "tfx-largebatch --help")
    whole = run(activate, *others, *programs)
    (packages,) = folder.glob("my-env/lib/python*/site-packages")
    found = json.loads(alone.stdout.splitlines()[-1])
    return Installed(folder, packages, found, help_alone, whole)


@pytest.mark.install
def test_the_commands_install_what_the_page_says(installed):
    assert len(INSTALLS) == 3
    assert installed.whole.returncode == 0, installed.whole.stderr
    assert f"{STACK}." in installed.whole.stdout
    assert "Usage: " in installed.whole.stdout


@pytest.mark.install
@pytest.mark.parametrize("cell", MACHINES)
def test_each_machine_gets_the_tfx_of_the_table(resolutions, cell):
    printed, problems = resolutions[cell].communicate()
    if resolutions[cell].returncode:
        skip_without_index(problems)
    found = re.search(r"^tfx==(1\.\d+)", printed, re.MULTILINE)
    assert (f"TFX {found[1]}" if found else "none: use Python 3.11") == cell
    assert bool(found) == (resolutions[cell].returncode == 0), problems


@pytest.mark.install
def test_the_wheel_is_whole_and_typed_and_its_lock_files_are_small(installed):
    templates = "pipeline/page/templates"
    names = {each.name for each in (installed.packages / templates).iterdir()}
    assert names == {each.name for each in (ROOT / templates).iterdir()} != set()
    for package in ("trainer_module", "transform", "components", "pipeline"):
        assert (installed.packages / package / "py.typed").is_file()
    folder = installed.packages / "pipeline" / "image" / "requirements"
    assert {each.name for each in folder.iterdir()} == {"stack-1.16", "stack-1.21"}
    assert sum(each.stat().st_size for each in folder.rglob("*.*")) < 250_000


@pytest.mark.install
def test_every_name_is_there_or_says_which_extra_it_needs(installed):
    lacking = installed.alone["lacking"]
    assert not [name for name in lacking if name.startswith("trainer_module")]
    assert {
        *("trainer_module.TrainingLoop", "trainer_module.run_fn", "trainer_module.tuner_fn"),
        *("trainer_module.TensorBoardScalars", "components.NormalizationLimits"),
        *("pipeline.PipelineConfig", "transform.FeatureSpec"),
    } <= set(installed.alone["there"])
    message = lacking.pop("tensorboard")
    assert message.startswith("TensorBoardScalars needs tensorboard")
    assert message.endswith(
        "which is not installed: uv pip install 'tfx-largebatch[tensorboard]', or leave out "
        "TensorBoardScalars (tensorboard: false)."
    )
    for name, message in lacking.items():
        extra = "pipeline" if name.startswith("pipeline") else "tfx"
        assert message.startswith(f"{name} needs ")
        assert message.endswith(f"not installed: uv pip install 'tfx-largebatch[{extra}]'")
    assert "needs tfx," in lacking["components.create_trainer"]
    assert "needs tensorflow_transform," in lacking["transform.preprocessing_fn"]
    assert "needs yaml," in lacking["pipeline.load_config"]
    assert (installed.help_alone.returncode, installed.help_alone.stdout) == (2, "")
    assert installed.help_alone.stderr.startswith(
        "The command line needs apache-beam, rich-click, tfx, pyyaml: "
        "uv pip install 'tfx-largebatch[pipeline]'."
    )


@pytest.mark.install
def test_ten_windows_are_trained_and_exported(installed):
    assert installed.alone["version"] == metadata("tfx-largebatch")["Version"]
    assert installed.alone["steps"] == 10
    assert installed.alone["difference"] < 1e-6  # of the exported model's outputs; float32


def test_the_readme_names_every_extra():
    named = re.findall(r"\.\[(\w+)\]", README)
    extras = {*metadata("tfx-largebatch").get_all("Provides-Extra")}
    assert sorted(named) == sorted(extras - {"dev"})


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
