"""The parts of a replay: placeholders, order of tasks, records of artifacts, the entry point."""

from __future__ import annotations

import json

import pytest

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.targets.artifact_records import ArtifactRecords
from pipeline.targets.compiled_spec import CompiledSpec, in_order
from pipeline.targets.entry_point import arguments_of
from pipeline.targets.placeholders import filled
from pipeline.targets.replay import NodeFailed, Replay

MODEL = {"instanceSchema": "title: tfx.Model\ntype: object\n"}
TOLD = {
    "inputs": {
        "artifacts": {"model": {"artifacts": [{"uri": "/m", "metadata": {"id": "7"}}]}},
        "parameterValues": {"rate": 0.5, "name": "a b"},
    },
    "outputs": {"artifacts": {}, "outputFile": "/o.json"},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("--rate={{$.inputs.parameters['rate']}}", "--rate=0.5"),
        ("{{$.inputs.parameters['name']}}", "a b"),
        ("{{$.inputs.artifacts['model'].uri}}/x", "/m/x"),
        ("name=\"{{$.inputs.artifacts['model'].metadata['id']}}\"", 'name="7"'),
        ("{{$.outputs.output_file}}", "/o.json"),
        ("{{$}}", json.dumps(TOLD)),
        ("{plain}", "{plain}"),
    ],
)
def test_placeholders_are_filled(text, value):
    assert filled(text, TOLD) == value


def test_a_placeholder_of_nothing_is_told():
    with pytest.raises(ValueError, match=r"parameters\['x'\]}} names nothing: .*'rate', 'name'"):
        filled("{{$.inputs.parameters['x']}}", TOLD)


def test_tasks_run_after_what_they_need_and_an_exit_handler_last():
    source = {"taskOutputArtifact": {"producerTask": "b", "outputArtifactKey": "x"}}
    handler = {"triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}}
    tasks = {
        "last": handler,
        "c": {"inputs": {"artifacts": {"x": source}}},
        "b": {"dependentTasks": ["a"]},
        "a": {},
    }
    assert in_order(tasks) == ["a", "b", "c", "last"]
    with pytest.raises(ConfigError, match="waits for z, which is none of its tasks"):
        in_order({"a": {"dependentTasks": ["z"]}})


def test_records_give_the_latest_that_a_resolver_asks_for(tmp_path):
    records = ArtifactRecords(tmp_path / "artifacts.jsonl")
    query = 'schema_title="tfx.Model" AND state=LIVE AND metadata.blessed.number_value=1'
    assert records.latest(query) is None
    for name, blessed in (("one", 1.0), ("two", 1.0), ("three", 0.0)):
        records.add({"name": name, "uri": name, "type": MODEL, "metadata": {"blessed": blessed}})
    records.add({"name": "x", "uri": "x", "type": {"schemaTitle": "tfx.Schema"}, "metadata": {}})
    assert records.latest(query)["name"] == "two"
    assert records.latest('schema_title="tfx.Model" AND name="one"')["uri"] == "one"
    with pytest.raises(ValueError, match="of no form that is known"):
        records.latest("create_time>3")


def test_the_entry_point_puts_back_the_types_that_kubeflow_drops():
    """Names, too, which TFX's Evaluator looks up."""
    artifact = {"uri": "s3://b/m", "type": {"schemaTitle": "system.Artifact"}}
    told = {
        "inputs": {"artifacts": {"model": {"artifacts": [dict(artifact)]}}},
        "outputs": {"artifacts": {"run": {"artifacts": [dict(artifact)]}}},
    }
    spec = {"artifacts": {"model": {"artifactType": MODEL}, "run": {"artifactType": MODEL}}}
    given = ["--executor_class_path", "x.Y", "--json_serialized_invocation_args", json.dumps(told)]
    given += ["--json_serialized_inputs_spec_args", json.dumps(spec)]
    given += ["--json_serialized_outputs_spec_args", json.dumps(spec), "--runner=FnApiRunner"]
    found = arguments_of(given)
    assert "--json_serialized_outputs_spec_args" not in found
    assert found[-1] == "--runner=FnApiRunner"
    mended = json.loads(found[3])
    assert mended["inputs"]["artifacts"]["model"]["artifacts"] == [
        {"uri": "s3://b/m", "type": MODEL, "name": "s3://b/m"}
    ]
    assert mended["outputs"]["artifacts"]["run"]["artifacts"][0]["type"] == MODEL
    own = {"uri": "u", "name": "n", "type": {"instanceSchema": "title: tfx.Schema"}}
    told["inputs"]["artifacts"]["model"]["artifacts"] = [own]
    given[3] = json.dumps(told)
    kept = json.loads(arguments_of(given)[3])["inputs"]["artifacts"]["model"]["artifacts"]
    assert kept == [own]


SCRIPT = """
import json, sys
told = json.loads(sys.argv[1])
print("says", sys.argv[2])
if sys.argv[2] == "fail":
    sys.exit(7)
place = told["outputs"]["artifacts"].get("out", {"artifacts": [None]})["artifacts"][0]
output = {"parameterValues": {"out": sys.argv[2] + "!"}}
if place:
    output["artifacts"] = {"out": {"artifacts": [{"uri": place["uri"], "metadata": {"n": 1}}]}}
with open(told["outputs"]["outputFile"], "w") as stream:
    json.dump(output, stream)
"""


def small_spec(word="hello", **tasks):
    """Two containers, an importer and an exit handler; a parameter of the pipeline's own."""
    container = {"command": ["python", "-c", SCRIPT], "image": "x"}
    says = {**container, "args": ["{{$}}", "{{$.inputs.parameters['word']}}"]}
    out = {"artifacts": {"out": {"artifactType": MODEL}}, "parameters": {"out": {}}}
    word_in = {"word": {"componentInputParameter": "word"}}
    produced = {"taskOutputParameter": {"producerTask": "first", "outputParameterKey": "out"}}
    imported = {"taskOutputArtifact": {"producerTask": "import", "outputArtifactKey": "got"}}
    ends = {"taskFinalStatus": {"producerTask": "tfx-dag"}}
    return {
        "pipelineInfo": {"name": "small"},
        "root": {
            "inputDefinitions": {"parameters": {"word": {"defaultValue": word}}},
            "dag": {
                "tasks": {
                    "first": {"componentRef": {"name": "says"}, "inputs": {"parameters": word_in}},
                    "import": {"componentRef": {"name": "import"}},
                    "second": {
                        "componentRef": {"name": "says"},
                        "inputs": {
                            "parameters": {"word": produced},
                            "artifacts": {"model": imported},
                        },
                    },
                    "at-exit": {
                        "componentRef": {"name": "says"},
                        "inputs": {"parameters": {"word": ends}},
                        "triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"},
                    },
                    **tasks,
                }
            },
        },
        "components": {
            "says": {"executorLabel": "says", "outputDefinitions": out},
            "import": {
                "executorLabel": "import",
                "outputDefinitions": {"artifacts": {"got": {"artifactType": MODEL}}},
            },
        },
        "deploymentSpec": {
            "executors": {
                "says": {"container": says},
                "import": {
                    "importer": {"artifactUri": {"constant": "/there"}, "typeSchema": MODEL}
                },
            }
        },
    }


def replayed(tmp_path, spec, **options):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    return Replay(CompiledSpec.read(path), tmp_path / "root", **options)


def test_parameters_artifacts_importer_and_exit_handler_are_executed(tmp_path):
    nodes = {n.name: n for n in replayed(tmp_path, small_spec(), parameters={"word": "hi"}).run()}
    assert list(nodes) == ["first", "import", "second", "at-exit"]
    assert nodes["first"].log.read_text() == "says hi\n"
    assert nodes["second"].log.read_text() == "says hi!\n"
    assert nodes["at-exit"].log.read_text().startswith('says {"state": "SUCCEEDED"')
    made = nodes["first"].artifacts["out"]["artifacts"][0]
    assert made["metadata"] == {"n": 1}
    assert nodes["import"].artifacts["got"]["artifacts"][0]["uri"] == "/there"
    lines = (tmp_path / "root" / "small" / "artifacts.jsonl").read_text().splitlines()
    assert len(lines) == 4


def test_a_node_that_fails_shows_its_words_and_exit_handlers_still_run(tmp_path):
    with pytest.raises(NodeFailed, match="first ended with code 7") as caught:
        replayed(tmp_path, small_spec("fail")).run()
    assert caught.value.last_lines() == ["says fail"]
    (log,) = (tmp_path / "root" / "small").glob("*/at-exit/log.txt")
    assert log.read_text().startswith('says {"state": "FAILED"')
    assert not list((tmp_path / "root" / "small").glob("*/second"))


def test_the_command_tells_what_is_wrong_with_a_file(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n")
    assert main(["replay", "--spec", str(path)]) == 2
    assert "no compiled pipeline" in capsys.readouterr().err
    spec = small_spec()
    spec["root"]["dag"]["tasks"]["first"]["inputs"]["parameters"]["word"] = {
        "runtimeValue": {"constant": "s3://other/data/x.csv"}
    }
    path.write_text(json.dumps(spec))
    assert main(["replay", "--spec", str(path), "--root", str(tmp_path / "root")]) == 2
    assert "--map s3://other/data=FOLDER" in capsys.readouterr().err
