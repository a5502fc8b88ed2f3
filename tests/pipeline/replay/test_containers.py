"""What a container is given, and Kubeflow's rules: a replay fails where Kubeflow fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from one_container import ARTIFACT, OUT, spec_of, write_spec

from pipeline.cli.cli import main
from pipeline.replay.containers import (
    CommandFailed,
    _expand_word,
    _start_pod,
    as_input,
    fill_placeholders,
)
from pipeline.replay.replay import NodeFailed, Replay
from pipeline.targets.compiled_spec import CompiledSpec
from trainer_module.devices.process import REPLAY, check_gpu_visible

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


VALUES = {"rate": 0.5, "name": "a b", "count": 2.0, "tiny": 1e-7, "flag": True}
EXECUTOR_INPUT = {
    "inputs": {
        "artifacts": {"model": {"artifacts": [{"uri": "/m", "metadata": {"id": "7"}}]}},
        "parameterValues": {**VALUES, "list": [1, 2.5, "a b"]},
    },
    "outputs": {"artifacts": {}, "outputFile": "/o.json"},
}


def test_placeholders_are_filled():
    for text, value in (
        ("--rate={{$.inputs.parameters['rate']}}", "--rate=0.5"),
        ("{{$.inputs.parameters['name']}}", "a b"),
        ("name=\"{{$.inputs.artifacts['model'].metadata['id']}}\"", 'name="7"'),
        ("{{$.outputs.outputFile}}", "/o.json"),
        ("{{$.inputs.parameters['tiny']}}", "0.0000001"),
        ("{{$.inputs.parameters['flag']}} {{$.inputs.parameters['list']}}", 'true [1,2.5,"a b"]'),
        ("{{$.inputs.artifacts['model'].path}}", "/m"),
        ("{{$}}", json.dumps(EXECUTOR_INPUT, separators=(",", ":")).replace("2.0", "2")),
    ):
        assert fill_placeholders(text, EXECUTOR_INPUT) == value
    with pytest.raises(ValueError, match=r"parameters\['x'\]}} names nothing: .*'rate', 'name'"):
        fill_placeholders("{{$.inputs.parameters['x']}}", EXECUTOR_INPUT)


def test_outputs_are_uploaded_and_the_driver_adds_one_that_no_component_declares(tmp_path):
    nodes = replay(tmp_path, writing(OUT, "{{$}}"))
    (given_input,) = given(nodes)["words"]
    artifacts = json.loads(given_input)["outputs"]["artifacts"]
    assert artifacts["executor-logs"]["artifacts"][0]["type"] == ARTIFACT
    (folder,) = tmp_path.glob("root/one/*/Write")
    assert sorted(path.name for path in folder.iterdir()) == ["log.txt", "out"]


def test_a_node_gets_a_pods_environment_and_the_clusters_secrets_alone(tmp_path, monkeypatch):
    for name in ("MY_DATABASE", "AWS_SECRET_ACCESS_KEY", "MY_TOKEN"):
        monkeypatch.setenv(name, "from here")
    secret = {"secretName": "s", "keyToEnv": [{"secretKey": "k", "envVar": "MY_TOKEN"}]}
    executors = {"x": {"secretAsEnv": [secret]}}
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}
    path = tmp_path / "spec.yaml"
    spec = writing(OUT, env={"TONE": "calm"})
    path.write_text(f"{json.dumps(spec)}\n---\n{json.dumps(platform)}")
    env = given(Replay(CompiledSpec.read(path), tmp_path / "root").run())["env"]
    assert (env["TONE"], env["MY_TOKEN"]) == ("calm", "from here")
    assert not {"MY_DATABASE", "AWS_SECRET_ACCESS_KEY"} & set(env)
    assert env["HOME"].startswith(str(tmp_path))
    assert env[REPLAY] == "1"


def test_a_replay_trains_without_the_gpu_of_the_platform(monkeypatch, caplog):
    monkeypatch.setenv(REPLAY, "1")
    check_gpu_visible()
    assert "this replay trains on the CPU" in caplog.text


def test_arguments_go_through_no_shell_and_the_kubelet_replaces_variables(tmp_path):
    plain = ["pa$$word", "$$(A)", "$(A)", "$(B)", "$$$(A)", "$(A", "a$"]
    expanded = ["pa$word", "$(A)", "1", "$(B)", "$1", "$(A", "a$"]
    assert [_expand_word(word, {"A": "1"}) for word in plain] == expanded
    # Values of parameters travel in an argument too; compiled files have such ones compressed.
    words = ("a b; echo $HOME `id` *", "$(TONE)-$$(TONE)-$(HOME)", "{{$.inputs.parameters['a']}}")
    inputs = {"a": "price$$|$(TONE)"}
    nodes = replay(tmp_path, writing(OUT, *words, inputs=inputs, env={"TONE": "calm"}))
    assert given(nodes)["words"] == [words[0], "calm-$(TONE)-$(HOME)", "price$|calm"]


def test_an_output_parameter_that_is_not_written_fails_the_node(tmp_path):
    with pytest.raises(NodeFailed, match="without writing its output parameter score"):
        replay(tmp_path, writing(OUT, output_parameters={"score": "STRING"}))


def test_an_artifact_whose_name_begins_with_anothers_would_be_downloaded_with_it(tmp_path):
    for name in ("model", "model_run", "other"):
        (tmp_path / "root" / name).mkdir(parents=True)
        (tmp_path / "root" / name / "file").write_text("x")
    artifact = {"uri": str(tmp_path / "root" / "model"), "type": ARTIFACT, "metadata": {}}
    given_input = {
        "inputs": {"artifacts": {"model": {"artifacts": [artifact]}}, "parameterValues": {}},
        "outputs": {"artifacts": {}, "parameters": {}, "outputFile": ""},
    }
    with (
        pytest.raises(CommandFailed, match=r"download other artifacts .*model_run"),
        _start_pod(given_input, tmp_path, tmp_path / "root"),
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


def reader(key, command):
    """A task that reads an output of `Write`."""
    source = {"taskOutputArtifact": {"producerTask": "Write", "outputArtifactKey": key}}
    path = "{{$.inputs.artifacts['a'].path}}"
    return {
        "tasks": {"Read": {"componentRef": {"name": "r"}, "inputs": {"artifacts": {"a": source}}}},
        "components": {"r": {"executorLabel": "r"}},
        "executors": {"r": {"container": {"image": "x:1", "command": [*command, path]}}},
    }


def test_an_imported_artifact_is_on_the_pods_disk(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows.csv").write_text("1")
    spec = spec_of(["true"], **reader("out", ["sh", "-c", 'test -f "$0/rows.csv"']))
    importer = {"artifactUri": {"constant": "s3://b/data"}, "typeSchema": ARTIFACT}
    spec["deploymentSpec"]["executors"]["x"] = {"importer": importer}
    path = write_spec(tmp_path, spec)
    options = ["--map", f"s3://b/data={data}", "--root", str(tmp_path / "root")]
    assert main(["replay", "--spec", str(path), *options]) == 0


def test_an_output_may_be_called_log_and_what_no_component_declares_is_ignored(tmp_path):
    output = json.dumps({"artifacts": {"other": {"artifacts": [{"uri": "x"}]}}})
    script = f"mkdir -p $0 $(dirname $1); echo > $0/words; printf '%s' '{output}' > $1"
    args = ["{{$.outputs.artifacts['log'].path}}", "{{$.outputs.outputFile}}"]
    more = reader("log", ["sh", "-c", 'test -f "$0/words"'])
    replay(tmp_path, spec_of(["sh", "-c", script], args, outputs=["log"], **more))
