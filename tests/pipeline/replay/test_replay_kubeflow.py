"""A replay of a file for Kubeflow fails where Kubeflow fails: one test per rule of the platform."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from one_container import ARTIFACT, OUT, spec_of, write_spec

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.replay.kubeflow_pod import CommandFailed, as_input, start_pod
from pipeline.replay.replay import NodeFailed, Replay
from pipeline.targets.compiled_spec import CompiledSpec

# Writes what it was given beside its first output's local path.
WRITES = """
import json, os, pathlib, sys
place = pathlib.Path(sys.argv[1])
place.mkdir(parents=True, exist_ok=True)
(place / "given.json").write_text(json.dumps({"words": sys.argv[2:], "env": dict(os.environ)}))
"""


def writing(*words, **more):
    return spec_of(["python", "-c", WRITES], words, **more)


def replay(folder, spec):
    return Replay(CompiledSpec.read(write_spec(folder, spec)), folder / "root").run()


def given(nodes):
    """What the container was given, as it wrote it; the launcher uploads it."""
    place = nodes[0].artifacts["out"]["artifacts"][0]["uri"]
    with open(f"{place}/given.json", encoding="utf-8") as stream:
        return json.load(stream)


def test_outputs_are_written_to_the_pods_disk_and_uploaded_after_the_end(tmp_path):
    nodes = replay(tmp_path, writing(OUT))
    assert given(nodes)["words"] == []
    (folder,) = tmp_path.glob("root/one/*/Write")
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "out"]


def test_the_driver_adds_an_output_that_no_component_declares(tmp_path):
    (given_input,) = given(replay(tmp_path, writing(OUT, "{{$}}")))["words"]
    artifacts = json.loads(given_input)["outputs"]["artifacts"]
    assert artifacts["executor-logs"]["artifacts"][0]["type"] == ARTIFACT


def test_a_node_gets_a_pods_environment_and_nothing_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATABASE", "here")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    env = given(replay(tmp_path, writing(OUT, env={"TONE": "calm"})))["env"]
    assert env["TONE"] == "calm"
    assert "MY_DATABASE" not in env
    assert "AWS_SECRET_ACCESS_KEY" not in env
    assert env["HOME"] != os.environ["HOME"]
    assert env["HOME"].startswith(str(tmp_path))


def test_variables_of_the_clusters_secrets_are_taken_from_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "from here")
    secret = {"secretName": "s", "keyToEnv": [{"secretKey": "k", "envVar": "MY_TOKEN"}]}
    executors = {"x": {"secretAsEnv": [secret]}}
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}
    path = tmp_path / "spec.yaml"
    path.write_text(f"{json.dumps(writing(OUT))}\n---\n{json.dumps(platform)}")
    nodes = Replay(CompiledSpec.read(path), tmp_path / "root").run()
    assert given(nodes)["env"]["MY_TOKEN"] == "from here"


def test_arguments_go_through_no_shell_and_kubernetes_replaces_variables(tmp_path):
    words = ("a b; echo $HOME `id` *", "$(TONE)-$$(TONE)-$(NO_SUCH)", '{"a": "$x"}')
    nodes = replay(tmp_path, writing(OUT, *words, env={"TONE": "calm"}))
    assert given(nodes)["words"] == [words[0], "calm-$(TONE)-$(NO_SUCH)", words[2]]


def test_an_output_parameter_that_is_not_written_fails_the_node(tmp_path):
    with pytest.raises(NodeFailed, match="without writing its output parameter score"):
        replay(tmp_path, writing(OUT, output_parameters={"score": "STRING"}))


def test_a_part_that_is_no_argument_is_refused_before_anything_runs(tmp_path):
    spec = writing(OUT, "x" * 131_072)
    with pytest.raises(ConfigError, match=r"x: its container has 128 KiB .*less than 128 KiB"):
        replay(tmp_path, spec)
    assert not (tmp_path / "root").exists()
    spec = writing(OUT)
    constant = {"runtimeValue": {"constant": "y" * 200_000}}
    spec["root"]["dag"]["tasks"]["Write"]["inputs"]["parameters"]["long"] = constant
    with pytest.raises(
        ConfigError, match=r"Write: its settings have 195 KiB .* most of it in long"
    ):
        replay(tmp_path, spec)


def test_a_spec_larger_than_a_workflow_is_refused(tmp_path):
    word = "z" * 100_000
    tasks = {
        f"t{n}": {
            "componentRef": {"name": "write"},
            "inputs": {"parameters": {"w": {"runtimeValue": {"constant": word}}}},
        }
        for n in range(16)
    }
    with pytest.raises(ConfigError, match=r"has 1,56\d KiB.*one object"):
        replay(tmp_path, writing(OUT, tasks=tasks))


def test_an_argument_that_is_too_long_when_filled_is_named(tmp_path):
    word = "{{$.inputs.parameters['long']}}"
    spec = writing("/x", "--rows", word * 2, parameters={"long": "y" * 70_000})
    with pytest.raises(NodeFailed, match=r"its argument --rows has 13\d KiB"):
        replay(tmp_path, spec)


def executor_input(uri, key="model"):
    artifact = {"uri": uri, "type": ARTIFACT, "metadata": {}}
    return {
        "inputs": {"artifacts": {key: {"artifacts": [artifact]}}, "parameterValues": {}},
        "outputs": {"artifacts": {}, "parameters": {}, "outputFile": ""},
    }


def test_inputs_are_on_the_pods_disk_before_the_command_starts(tmp_path):
    (tmp_path / "root" / "model" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "model" / "deep" / "file").write_text("weights")
    uri = str(tmp_path / "root" / "model")
    with start_pod(executor_input(uri), tmp_path, tmp_path / "root") as pod:
        with open(f"{pod.path_of(uri)}/deep/file", encoding="utf-8") as stream:
            assert stream.read() == "weights"
        disk = pod.disk
    assert not disk.exists()


def test_an_artifact_whose_name_begins_with_anothers_would_be_downloaded_with_it(tmp_path):
    for name in ("model", "model_run", "other"):
        (tmp_path / "root" / name).mkdir(parents=True)
        (tmp_path / "root" / name / "file").write_text("x")
    uri = str(tmp_path / "root" / "model")
    with (
        pytest.raises(CommandFailed, match=r"download other artifacts .*model_run"),
        start_pod(executor_input(uri), tmp_path, tmp_path / "root"),
    ):
        pass


def test_artifacts_are_handed_over_as_the_metadata_store_keeps_them():
    metadata = {"n": 1, "flag": True, "names": ["a"], "more": {"b": 1}, "text": "x"}
    artifact = {"name": "run/model", "uri": "s3://b/m", "type": ARTIFACT, "metadata": metadata}
    found = as_input(artifact)
    assert found["name"].isdigit()
    assert found["type"] == {"instanceSchema": ""}
    assert found["metadata"] == {
        "display_name": "run/model",
        "n": 1,
        "flag": 1,
        "text": "x",
        "names": {"list": ["a"]},
        "more": {"struct": {"b": 1}},
    }


@pytest.mark.parametrize("name", ["../../evil", "/etc", "a/b", ""])
def test_names_that_leave_the_replays_folder_are_refused(tmp_path, name, capsys):
    spec = writing(OUT)
    tasks = spec["root"]["dag"]["tasks"]
    tasks[name] = tasks.pop("Write")
    path = write_spec(tmp_path, spec)
    assert main(["replay", "--spec", str(path), "--root", str(tmp_path / "root")]) == 2
    assert f"{name!r} is not a valid name of a pipeline, a task" in capsys.readouterr().err


def test_an_empty_parameter_value_is_a_value(tmp_path):
    path = tmp_path / "spec.yaml"
    spec = writing(OUT, "{{$.inputs.parameters['word']}}", parameters={"word": "default"})
    path.write_text(json.dumps(spec))
    arguments = ["replay", "--spec", str(path), "--root", str(tmp_path / "root")]
    assert main([*arguments, "--parameter", "word="]) == 0
    (file,) = tmp_path.glob("root/one/*/Write/out/given.json")
    assert json.loads(file.read_text())["words"] == [""]


def test_sigterm_to_a_replay_ends_its_node(tmp_path):
    started, ended = tmp_path / "started", tmp_path / "ended"
    waits = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n    pathlib.Path(sys.argv[2]).touch(); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "time.sleep(600)\n"
    )
    spec = writing(str(started), str(ended))
    spec["deploymentSpec"]["executors"]["x"]["container"]["command"][2] = waits
    path = write_spec(tmp_path, spec)
    command = [sys.executable, "-m", "pipeline", "replay", "--spec", str(path)]
    process = subprocess.Popen([*command, "--root", str(tmp_path / "root")])
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert ended.exists()
