"""Odd but plausible files: a replay ends as the platform does, with a message."""

from __future__ import annotations

import json

import pytest
from one_container import ARTIFACT, OUT, spec_of, write_spec

from pipeline.cli.cli import main
from pipeline.replay.kubeflow_pod import expand_word
from pipeline.targets.long_values import compress_properties, expand, find_oversized
from trainer_module.devices.process import REPLAY, check_gpu_visible

# Writes its other words, a line each, to a file in its first.
WRITE = 'mkdir -p "$0"; printf "%s\\n" "$@" > "$0/words"'


def replay(folder, spec, *options):
    path = write_spec(folder, spec)
    return main(["replay", "--spec", str(path), "--root", str(folder / "root"), *options])


def words(folder):
    (file,) = folder.glob("root/one/*/Write/out/words")
    return file.read_text().splitlines()


def reader(key, command):
    """A task that reads an output of `Write`."""
    source = {"taskOutputArtifact": {"producerTask": "Write", "outputArtifactKey": key}}
    path = "{{$.inputs.artifacts['a'].path}}"
    return {
        "tasks": {"Read": {"componentRef": {"name": "r"}, "inputs": {"artifacts": {"a": source}}}},
        "components": {"r": {"executorLabel": "r"}},
        "executors": {"r": {"container": {"image": "x:1", "command": [*command, path]}}},
    }


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (spec_of(["true"], ["--a", "{{$}}{{$}}"], {"a": "y" * 90_000}), "its argument --a has"),
        (spec_of(["/app/train"]), "cannot start /app/train: No such file"),
        (spec_of([], []), "neither command nor args"),
        (spec_of(["true"], ["{{$}}"] * 40, {"a": "y" * 90_000}), "Argument list too long"),
    ],
    ids=["argument", "program", "no command", "arguments together"],
)
def test_a_node_that_cannot_start_or_is_refused_says_why(tmp_path, capsys, spec, why):
    assert replay(tmp_path, spec) == 1
    assert why in "".join(capsys.readouterr())


def test_a_replay_trains_without_the_gpu_of_the_platform(tmp_path, monkeypatch, caplog):
    spec = spec_of(["sh", "-c", f'mkdir -p "$0"; echo "${REPLAY}" > "$0/words"'])
    assert replay(tmp_path, spec) == 0
    monkeypatch.setenv(REPLAY, *words(tmp_path))
    check_gpu_visible()
    assert "this replay trains on the CPU" in caplog.text


def test_an_imported_artifact_is_on_the_pods_disk(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows.csv").write_text("1")
    spec = spec_of(["true"], **reader("out", ["sh", "-c", 'test -f "$0/rows.csv"']))
    importer = {"artifactUri": {"constant": "s3://b/data"}, "typeSchema": ARTIFACT}
    spec["deploymentSpec"]["executors"]["x"] = {"importer": importer}
    assert replay(tmp_path, spec, "--map", f"s3://b/data={data}") == 0


def test_an_output_that_is_called_log_is_none_of_the_replays(tmp_path):
    args = ["{{$.outputs.artifacts['log'].path}}"]
    more = reader("log", ["sh", "-c", 'test -f "$0/words"'])
    assert replay(tmp_path, spec_of(["sh", "-c", WRITE], args, outputs=["log"], **more)) == 0


def test_the_component_of_a_graph_is_one_argument_of_its_driver():
    spec = spec_of(["true"], inputs={"a": "y" * 60_000})
    tasks = spec["root"]["dag"]["tasks"]
    tasks.update({f"Write{n}": tasks["Write"] for n in range(3)})
    (found,) = find_oversized(spec, "kubeflow")
    assert found.startswith("root: its component has")


def test_the_kubelet_halves_dollars_and_knows_the_variables_of_the_spec(tmp_path):
    given = ["pa$$word", "$$(A)", "$(A)", "$(B)", "$$$(A)", "$(A", "a$"]
    found = ["pa$word", "$(A)", "1", "$(B)", "$1", "$(A", "a$"]
    assert [expand_word(word, {"A": "1"}) for word in given] == found
    spec = spec_of(["sh", "-c", WRITE], [OUT, "$(HOME)", "$(TONE)"], env={"TONE": "calm"})
    assert replay(tmp_path, spec) == 0
    assert words(tmp_path) == ["$(HOME)", "calm"]


def test_placeholders_in_constants_are_filled(tmp_path):
    """As KFP's compiler writes `f"hi {name}"`."""
    inputs = {"m": "hi {{$.inputs.parameters['pipelinechannel--n']}}", "pipelinechannel--n": "bob"}
    args = [OUT, "{{$.inputs.parameters['m']}}"]
    assert replay(tmp_path, spec_of(["sh", "-c", WRITE], args, inputs)) == 0
    assert words(tmp_path) == ["hi bob"]


def test_values_are_written_as_go_writes_them(tmp_path):
    inputs = {"whole": 2.0, "rate": 0.5, "n": 2**53 + 1, "l": ["é", 2.0]}
    args = [OUT, *(f"{{{{$.inputs.parameters['{name}']}}}}" for name in inputs)]
    assert replay(tmp_path, spec_of(["sh", "-c", WRITE], args, inputs)) == 0
    assert words(tmp_path) == ["2", "0.5", str(2**53), '["é",2]']


def test_outputs_that_no_component_declares_are_ignored(tmp_path):
    output = json.dumps({"artifacts": {"other": {"artifacts": [{"uri": "x"}]}}})
    script = f"mkdir -p $(dirname $0); printf '%s' '{output}' > $0"
    assert replay(tmp_path, spec_of(["sh", "-c", script], ["{{$.outputs.output_file}}"])) == 0


def test_places_in_descriptions_are_not_read_and_places_may_have_any_letter(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    spec = spec_of(["sh", "-c", WRITE], [OUT, "{{$.inputs.parameters['d']}}"], {"d": "s3://b/é/x"})
    about = {"parameterType": "STRING", "description": "such as gs://bucket/path"}
    spec["components"]["write"]["inputDefinitions"] = {"parameters": {"d": about}}
    assert replay(tmp_path, spec, "--map", f"s3://b/é={data}") == 0
    assert words(tmp_path) == [f"{data}/x"]


def test_the_kubelet_replaces_variables_in_values_of_parameters_too(tmp_path):
    """They travel in the ExecutorInput, an argument of the launcher; compressed ones are safe."""
    args = [OUT, "{{$.inputs.parameters['a']}}"]
    inputs = {"a": "price$$|$(TONE)"}
    assert replay(tmp_path, spec_of(["sh", "-c", WRITE], args, inputs, {"TONE": "calm"})) == 0
    assert words(tmp_path) == ["price$|calm"]


def test_a_setting_that_the_kubelet_would_change_travels_compressed():
    for text in ("price$$", "$(HOME)"):
        task = {"inputs": {"parameters": {"p": {"runtimeValue": {"constant": text}}}}}
        compress_properties(task)
        packed = task["inputs"]["parameters"]["p"]["runtimeValue"]["constant"]
        assert "$" not in packed
        assert expand(packed) == text
