"""Every command and every piece of code in the README does what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import types

import pytest
from command_line import ROOT, run_command, run_line

README = (ROOT / "README.md").read_text(encoding="utf-8")
TUNING = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
OWN_DATA = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def shell_lines(text: str) -> list[str]:
    lines = "".join(blocks(text, "sh")).splitlines()
    return [line.partition(" #")[0].strip() for line in lines]


COMMANDS = shell_lines(README)


def makes(target: str) -> str:
    """What `make <target>` would run, after its set-up."""
    # Not what the `make test` around this test was called with.
    inherited = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "ARGS", "CONFIG", "PYTHON")
    done = subprocess.run(
        ["make", "--dry-run", target],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in inherited},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_make_run_and_make_test_are_what_these_tests_run():
    assert COMMANDS[:2] == ["make run", "make test"]
    # The `taxi` fixture runs this very command, and this is one of the tests of the other.
    assert "python -m pipeline run --config examples/taxi/pipeline.yaml" in makes("run")
    whole = r"python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --durations=15 *$"
    assert re.search(whole, makes("test"), flags=re.MULTILINE)


def test_no_command_is_left_untested():
    known = ("make run", "make test", "python -m pipeline ", "tfx pipeline create ", "tfx run ")
    known += ("python3 -m venv ", "uv pip install ")  # tests/packaging
    assert [line for line in COMMANDS if not line.startswith(known)] == []


def test_the_tfx_commands_are_those_of_the_cli_test():
    tested = (ROOT / "tests" / "e2e" / "test_taxi.py").read_text(encoding="utf-8")
    for line in COMMANDS:
        if line.startswith("tfx "):
            for word in shlex.split(line):
                assert f'"{word}"' in tested or word == "tfx", f"{word} of {line}"


@pytest.mark.slow
@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith("python -m pipeline")])
def test_pipeline_commands(line, taxi, request, tmp_path):
    if " run " in line:
        retrained = request.getfixturevalue("retrained")  # runs this very line
        assert retrained.line.startswith(line)
        # With one step more than none, it is not blessed.
        assert retrained.result.code == 3, retrained.result.output
        return
    shutil.copy(ROOT / "tests" / "data" / "one_ride.csv", tmp_path / "rides.csv")
    line = line.replace("output/taxi", str(taxi.folder))
    line = line.replace("rides.csv", str(tmp_path / "rides.csv"))
    line = line.replace("pipeline.schema.json", str(tmp_path / "pipeline.schema.json"))
    if ">" in line:
        path = f"{ROOT / '.venv' / 'bin'}:/usr/bin:/bin"
        result = run_command("sh", "-c", line, environment={"PATH": path})
    else:
        result = run_line(line)
    # Here no program opens a page, which is a failure that names the page.
    assert result.code == int("--open" in line), result.output
    if "predict" in line:
        assert re.search(r"^ +1 +[01] +0\.\d{4} +0\.\d{4}$", result.output, flags=re.MULTILINE)


def words(line: str) -> list[str]:
    """The line without numbers, units of time and folders, which differ from run to run."""
    found = re.findall(r"[A-Za-z_]\S*|≥|>", line)
    return [word for word in found if "output" not in word and word not in ("min", "s")]


@pytest.mark.slow
def test_the_shortened_output_is_printed_by_a_run(taxi):
    (block,) = re.findall(r"```\n(\[10/10\].*?)```", README, flags=re.DOTALL)
    shown = block.splitlines()
    assert len(shown) == 13
    lines = [line.replace(str(taxi.folder), "output") for line in taxi.result.output.splitlines()]
    printed = {tuple(words(line)): line for line in lines}
    assert [line for line in shown if tuple(words(line)) not in printed] == []
    for line in shown:
        if line.startswith(("all rows", "a constant", "a linear model")):
            expected, got = (
                [float(n) for n in re.findall(r"0\.\d+", text)]
                for text in (line, printed[tuple(words(line))])
            )
            assert got == pytest.approx(expected, abs=0.02)


@pytest.mark.slow
def test_python_reuses_the_trainer():
    from tfx import v1 as tfx

    from trainer_module import TrainerConfig

    (code,) = [block for block in blocks(README, "python") if "my_model" in block]
    artifacts = tfx.types.standard_artifacts
    outputs = {
        "transformed_examples": tfx.dsl.Channel(type=artifacts.Examples),
        "transform_graph": tfx.dsl.Channel(type=artifacts.TransformGraph),
        "schema": tfx.dsl.Channel(type=artifacts.Schema),
    }
    node = types.SimpleNamespace(outputs=outputs)
    scope = {"tfx": tfx, "transform": node, "schema_gen": node}
    exec(code, scope)
    config = json.loads(scope["trainer"].exec_properties["custom_config"])["trainer"]
    assert TrainerConfig.parse(config).micro_batch_size == 256


def test_the_yaml_and_the_search_of_the_docs_are_a_configuration(tmp_path):
    from pipeline import load_config
    from pipeline.common.errors import ConfigError

    (text,), (tuning,) = blocks(OWN_DATA, "yaml"), blocks(TUNING, "yaml")
    file = tmp_path / "houses.yaml"
    file.write_text(text)
    config = load_config(file)
    assert (config.name, config.label.kind) == ("houses", "regression")
    file.write_text(text + tuning)
    assert len(load_config(file).trainings) == 4
    file.write_text(text + tuning.replace("learning_rate", "lerning_rate"))
    with pytest.raises(ConfigError) as unknown_setting:
        load_config(file)
    (shown,) = re.findall(r"^ *(tuning.search: .*)$", TUNING, flags=re.MULTILINE)
    assert str(unknown_setting.value).endswith(shown)


def test_the_errors_of_the_docs_are_those_that_are_printed(tmp_path):
    from pipeline import load_config
    from pipeline.common.errors import ConfigError
    from pipeline.preflight import preflight

    (text,) = blocks(OWN_DATA, "yaml")
    rows = "".join(f"{50 + i},{i % 5},Oslo,{100 + i}\n" for i in range(200))
    (tmp_path / "houses.csv").write_text("area,rooms,town,price\n" + rows)
    file = tmp_path / "houses.yaml"
    file.write_text(text.replace("global_batch_size", "global_batchsize"))
    with pytest.raises(ConfigError) as unknown_key:
        load_config(file)
    file.write_text(text.replace("columns: [area]", "columns: [aera]"))
    config = load_config(file)
    with pytest.raises(ConfigError) as unknown_column:
        preflight.check(config)
    printed = str(unknown_key.value).replace(f"{tmp_path}/", ""), str(unknown_column.value)
    starts = ("houses.yaml:", "features: group")
    shown = [line for line in OWN_DATA.splitlines() if line.startswith(starts)]
    for line, message in zip(shown, printed, strict=True):
        assert message.startswith(line.removesuffix(" ..."))


@pytest.mark.parametrize(
    "page", ["README.md", "docs/own-data.md", "docs/tuning.md", "CONTRIBUTING.md"]
)
def test_links_lead_somewhere(page):
    file = ROOT / page
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", file.read_text(encoding="utf-8"))
    assert [target for target in targets if not (file.parent / target).exists()] == []
