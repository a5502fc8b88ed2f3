"""A replay as a whole: order of tasks, values handed over, failures, refusals, the command."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from one_container import OUT, write_spec
from one_container import spec_of as one_container

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.replay.replay import NodeFailed, Replay, _latest
from pipeline.targets.compiled_spec import CompiledSpec

MODEL = {"instanceSchema": "title: tfx.Model\ntype: object\n"}


def test_records_give_the_latest_that_a_resolver_asks_for(tmp_path):
    records = tmp_path / "artifacts.jsonl"
    query = 'schema_title="tfx.Model" AND state=LIVE AND metadata.blessed.number_value=1'
    assert _latest(records, query) is None
    made = [
        {"name": name, "uri": name, "type": MODEL, "metadata": {"blessed": blessed}}
        for name, blessed in (("one", 1.0), ("two", 1.0), ("three", 0.0))
    ]
    made.append({"name": "x", "uri": "x", "type": {"schemaTitle": "tfx.Schema"}, "metadata": {}})
    records.write_text("\n".join(map(json.dumps, made)))
    assert _latest(records, query)["name"] == "two"
    assert _latest(records, 'schema_title="tfx.Model" AND name="one"')["uri"] == "one"
    with pytest.raises(ValueError, match="of no form that is known"):
        _latest(records, "create_time>3")


# The platform makes the folders of output parameters and artifacts, not that of its output file.
SCRIPT = """
import json, os, sys
reported = json.loads(sys.argv[1])
print("says", sys.argv[2])
if sys.argv[2] == "fail":
    sys.exit(7)
place = reported["outputs"]["artifacts"].get("out", {"artifacts": [None]})["artifacts"][0]
output = {"parameterValues": {"out": sys.argv[2] + "!"}}
if place:
    output["artifacts"] = {"out": {"artifacts": [{"uri": place["uri"], "metadata": {"n": 1}}]}}
os.makedirs(os.path.dirname(reported["outputs"]["outputFile"]), exist_ok=True)
with open(reported["outputs"]["outputFile"], "w") as stream:
    json.dump(output, stream)
"""


# Two containers and an importer; a parameter of the pipeline's own.
SMALL = """
pipelineInfo: {name: small}
root:
  inputDefinitions: {parameters: {word: {}}}
  dag:
    tasks:
      first:
        componentRef: {name: says}
        inputs: {parameters: {word: {componentInputParameter: word}}}
      import: {componentRef: {name: import}}
      second:
        componentRef: {name: says}
        inputs:
          parameters: {word: {taskOutputParameter: {producerTask: first, outputParameterKey: out}}}
          artifacts: {model: {taskOutputArtifact: {producerTask: import, outputArtifactKey: got}}}
components:
  says:
    executorLabel: says
    outputDefinitions: {artifacts: {out: {artifactType: MODEL}}, parameters: {out: {}}}
  import: {executorLabel: import, outputDefinitions: {artifacts: {got: {artifactType: MODEL}}}}
deploymentSpec:
  executors:
    says: {container: {image: x, args: ["{{$}}", "{{$.inputs.parameters['word']}}"]}}
    import: {importer: {artifactUri: {constant: /there}, typeSchema: MODEL}}
"""


def small_spec(word="hello"):
    spec = yaml.safe_load(SMALL.replace("MODEL", json.dumps(MODEL)))
    spec["root"]["inputDefinitions"]["parameters"]["word"]["defaultValue"] = word
    spec["deploymentSpec"]["executors"]["says"]["container"]["command"] = ["python", "-c", SCRIPT]
    return spec


def replayed(tmp_path, spec, **options):
    return Replay(CompiledSpec.read(write_spec(tmp_path, spec)), tmp_path / "root", **options)


def test_parameters_artifacts_and_an_importer_are_handed_over(tmp_path):
    nodes = {n.name: n for n in replayed(tmp_path, small_spec(), parameters={"word": "hi"}).run()}
    assert list(nodes) == ["first", "import", "second"]
    assert nodes["first"].log.read_text() == "says hi\n"
    assert nodes["second"].log.read_text() == "says hi!\n"
    made = nodes["first"].artifacts["out"]["artifacts"][0]
    assert made["metadata"] == {"n": 1}
    assert nodes["import"].artifacts["got"]["artifacts"][0]["uri"] == "/there"
    lines = (tmp_path / "root" / "small" / "artifacts.jsonl").read_text().splitlines()
    assert len(lines) == 3


def test_a_node_that_fails_shows_its_words_and_ends_the_replay(tmp_path):
    with pytest.raises(NodeFailed, match="first ended with code 7") as caught:
        replayed(tmp_path, small_spec("fail")).run()
    assert caught.value.last_lines() == ["says fail"]
    assert not list((tmp_path / "root" / "small").glob("*/second"))


def test_a_node_is_tried_as_often_as_the_spec_says_and_limited(tmp_path):
    spec, tried, again = small_spec(), tmp_path / "tried", []
    container = {"command": ["sh", "-c", f"[ -e {tried} ] && sleep 60; touch {tried}; exit 7"]}
    spec["deploymentSpec"]["executors"]["says"]["container"] = container
    spec["root"]["dag"]["tasks"]["first"]["retryPolicy"] = {"maxRetryCount": 1}
    limit = {"deploymentSpec": {"executors": {"says": {"activeDeadlineSeconds": "1"}}}}
    path = tmp_path / "limited.yaml"
    path.write_text(f"{json.dumps(spec)}\n---\n{json.dumps({'platforms': {'kubernetes': limit}})}")
    replay = Replay(CompiledSpec.read(path), tmp_path / "root", say=again.append)
    with pytest.raises(NodeFailed, match=r"first was ended after its timeout of 1 s 2 times"):
        replay.run()
    assert again == ["first: start", "first: ended with code 7; started again"]


def test_what_compile_never_writes_is_refused_before_anything_runs(tmp_path):
    for part, named in (
        ({"triggerPolicy": {"condition": "1 == 1"}}, "triggerPolicy"),
        ({"inputs": {"artifacts": {"a": {"componentInputArtifact": "a"}}}}, "componentInputArt"),
        ({"componentRef": {"name": "graph"}}, "dag"),
        ({"componentRef": {"name": "other"}}, "googleCloudPipelineJob"),
    ):
        spec = small_spec()
        spec["root"]["dag"]["tasks"]["first"].update(part)
        spec["components"] |= {"graph": {"dag": {}}, "other": {"executorLabel": "other"}}
        spec["deploymentSpec"]["executors"]["other"] = {"googleCloudPipelineJob": {}}
        with pytest.raises(ConfigError, match=f"first has {named}.*pipeline compile"):
            replayed(tmp_path, spec)
    spec = one_container(["true"], ["x" * 131_072])
    with pytest.raises(ConfigError, match=r"x: its container has 128 KiB .*less than 128 KiB"):
        replayed(tmp_path, spec)
    assert not (tmp_path / "root").exists()


def test_parameters_have_the_pipelines_types_and_defaults(tmp_path):
    spec = small_spec()
    kinds = spec["root"]["inputDefinitions"]["parameters"]
    kinds["n"] = {"parameterType": "NUMBER_INTEGER"}
    for values, message in (
        ({"n": "much"}, r"--parameter n=.much.: not a NUMBER_INTEGER.*such as 3"),
        ({"n": "1", "m": "2"}, r"m: the pipeline has no parameter.*word"),
    ):
        with pytest.raises(ConfigError, match=message):
            replayed(tmp_path, spec, parameters=values)


def test_the_pools_of_a_custom_job_are_processes_with_tf_config(tmp_path):
    script = "import os, sys; print(sys.argv[1], os.environ['TF_CONFIG'])"
    container = {"imageUri": "x:1", "command": ["python", "-c", script], "args": ["{{$}}"]}
    pools = [{"containerSpec": container, "replicaCount": count} for count in ("1", "2")]
    job = {"customJob": {"customJob": {"jobSpec": {"workerPoolSpecs": pools}}}}
    spec = {
        "pipelineInfo": {"name": "workers"},
        "root": {"dag": {"tasks": {"Trainer": {"componentRef": {"name": "Trainer"}}}}},
        "components": {"Trainer": {"executorLabel": "x"}},
        "deploymentSpec": {"executors": {"x": job}},
    }
    (node,) = replayed(tmp_path, {"pipelineSpec": spec}).run()
    found = {}
    for line in node.log.read_text().splitlines():
        name, _, rest = line.partition("] ")
        found[name[1:]] = json.loads(rest[rest.index('{"cluster"') :])
    assert set(found) == {"chief", "worker 0", "worker 1"}
    clusters = [each["cluster"] for each in found.values()]
    assert clusters[0] == clusters[1] == clusters[2]
    assert [len(clusters[0][role]) for role in ("chief", "worker")] == [1, 2]
    assert found["worker 1"]["task"] == {"type": "worker", "index": 1}
    container["command"][2] = "import sys; sys.exit(3)"
    with pytest.raises(NodeFailed, match=r"Trainer ended with code 3 \(its (chief|worker \d)\)"):
        replayed(tmp_path, {"pipelineSpec": spec}).run()


def command(folder, spec, *options, root=None):
    path = write_spec(folder, spec)
    return main(["replay", "--spec", str(path), "--root", str(root or folder / "root"), *options])


def test_a_node_that_cannot_start_says_why(tmp_path, capsys):
    for spec, why in (
        (one_container(["true"], ["--a", "{{$}}{{$}}"], {"a": "y" * 90_000}), "its argument --a"),
        (one_container(["/app/train"]), "cannot start /app/train: No such file"),
        (one_container([], []), "neither command nor args"),
        (one_container(["true"], ["{{$}}"] * 40, {"a": "y" * 90_000}), "Argument list too long"),
    ):
        assert command(tmp_path, spec) == 1
        assert why in "".join(capsys.readouterr())


def test_the_command_refuses_a_wrong_file_or_folder(tmp_path, capsys):
    remote = small_spec()
    remote["root"]["dag"]["tasks"]["first"]["inputs"]["parameters"]["word"] = {
        "runtimeValue": {"constant": "s3://other/data/x.csv"}
    }
    evil = one_container(["true"])
    evil["root"]["dag"]["tasks"]["../evil"] = evil["root"]["dag"]["tasks"].pop("Write")
    (tmp_path / "file").write_text("")
    for spec, options, code, message in (
        ({"a": 1}, {}, 2, "not a compiled pipeline"),
        (remote, {}, 2, "--map s3://other/data=FOLDER"),
        (evil, {}, 2, "'../evil' is not a valid name of a pipeline, a task"),
        (small_spec(), {"root": tmp_path / 'a"b'}, 2, "--root .*has '\"', which"),
        (small_spec(), {"root": tmp_path / "file" / "x"}, 1, "cannot write there .*Not a direct"),
    ):
        assert command(tmp_path, spec, **options) == code, message
        assert re.search(message, capsys.readouterr().err)


def test_a_root_may_have_any_other_name_and_an_empty_value_is_a_value(tmp_path):
    word = "{{$.inputs.parameters['word']}}"
    script = 'mkdir -p "$0"; printf "<%s>" "$1" > "$0/word"'
    spec = one_container(["sh", "-c", script], [OUT, word], parameters={"word": "default"})
    root = tmp_path / "ü 漢 100%20 it's $HOME {a},b:c#d&e;f|g"
    assert command(tmp_path, spec, "--parameter", "word=", root=root) == 0
    (file,) = root.glob("one/*/Write/out/word")
    assert file.read_text() == "<>"
