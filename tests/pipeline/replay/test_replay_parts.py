"""The parts of a replay: placeholders, order of tasks, records of artifacts, the entry point."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.replay.replay import NodeFailed, Replay, _ArtifactRecords
from pipeline.targets import entry_point
from pipeline.targets.compiled_spec import CompiledSpec, in_order
from pipeline.targets.entry_point import _Invocation
from pipeline.targets.executor_input import output_names, restore_names
from pipeline.targets.long_values import _compress, expand
from pipeline.targets.placeholders import Placeholders

MODEL = {"instanceSchema": "title: tfx.Model\ntype: object\n"}
EXECUTOR_INPUT = {
    "inputs": {
        "artifacts": {"model": {"artifacts": [{"uri": "/m", "metadata": {"id": "7"}}]}},
        "parameterValues": {
            "rate": 0.5,
            "name": "a b",
            "count": 2.0,
            "tiny": 1e-7,
            "flag": True,
            "list": [1, 2.5, "a b"],
        },
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
        ("{{$.inputs.parameters['count']}}", "2"),
        ("{{$.inputs.parameters['tiny']}}", "0.0000001"),
        ("{{$.inputs.parameters['flag']}} {{$.inputs.parameters['list']}}", 'true [1,2.5,"a b"]'),
        ("{{$.inputs.artifacts['model'].path}}", "/m"),
        ("{{$}}", json.dumps(EXECUTOR_INPUT, separators=(",", ":")).replace("2.0", "2")),
        ("{plain}", "{plain}"),
    ],
)
def test_placeholders_are_filled(text, value):
    assert Placeholders(EXECUTOR_INPUT).fill(text) == value


def test_a_placeholder_without_a_value_is_an_error():
    with pytest.raises(ValueError, match=r"parameters\['x'\]}} names nothing: .*'rate', 'name'"):
        Placeholders(EXECUTOR_INPUT).fill("{{$.inputs.parameters['x']}}")


def test_tasks_run_after_what_they_need():
    source = {"taskOutputArtifact": {"producerTask": "b", "outputArtifactKey": "x"}}
    tasks = {
        "c": {"inputs": {"artifacts": {"x": source}}},
        "b": {"dependentTasks": ["a"]},
        "a": {},
    }
    assert in_order(tasks) == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="waits for z, which is none of its tasks"):
        in_order({"a": {"dependentTasks": ["z"]}})


def test_records_give_the_latest_that_a_resolver_asks_for(tmp_path):
    records = _ArtifactRecords(tmp_path / "artifacts.jsonl")
    query = 'schema_title="tfx.Model" AND state=LIVE AND metadata.blessed.number_value=1'
    assert records.latest(query) is None
    for name, blessed in (("one", 1.0), ("two", 1.0), ("three", 0.0)):
        records.add({"name": name, "uri": name, "type": MODEL, "metadata": {"blessed": blessed}})
    records.add({"name": "x", "uri": "x", "type": {"schemaTitle": "tfx.Schema"}, "metadata": {}})
    assert records.latest(query)["name"] == "two"
    assert records.latest('schema_title="tfx.Model" AND name="one"')["uri"] == "one"
    with pytest.raises(ValueError, match="of no form that is known"):
        records.latest("create_time>3")


UNTYPED = {"instanceSchema": ""}
LOGS = {"executor-logs": {"schemaTitle": "system.Artifact"}}


def arguments(executor_input, *, inputs=None, outputs=None):
    """A container's arguments, as the compiler writes them."""
    given = ["--executor_class_path", "x.Y", "--json_serialized_invocation_args"]
    given += [json.dumps(executor_input), "--runner=FnApiRunner"]
    for flag, spec in (("inputs", inputs), ("outputs", outputs)):
        if spec is not None:
            given += [f"--json_serialized_{flag}_spec_args", json.dumps(spec)]
    return given


def artifacts(**types):
    return {key: {"artifacts": [{"uri": f"s3://b/{key}", "type": t}]} for key, t in types.items()}


def declared(**types):
    return {"artifacts": {key: {"artifactType": kind} for key, kind in types.items()}}


def test_tfx_gets_the_declared_artifacts_with_types_and_names():
    """Kubeflow drops the types, TFX's Evaluator looks the names up, and 2.5 adds executor-logs."""
    given = {
        "inputs": {"artifacts": artifacts(model=UNTYPED, extra=UNTYPED)},
        "outputs": {
            "artifacts": artifacts(
                run=MODEL, **{"executor-logs": {"schemaTitle": "system.Artifact"}}
            ),
            "outputFile": "/x",
        },
    }
    found = _Invocation.read(
        arguments(given, inputs=declared(model=MODEL), outputs=declared(run=MODEL))
    )
    assert "--json_serialized_outputs_spec_args" not in found.arguments
    assert "--runner=FnApiRunner" in found.for_tfx()
    reported = json.loads(found.for_tfx()[-1])
    assert reported["inputs"]["artifacts"] == {
        "model": {"artifacts": [{"uri": "s3://b/model", "type": MODEL, "name": "s3://b/model"}]}
    }
    assert list(reported["outputs"]["artifacts"]) == ["run"]
    assert reported["outputs"]["outputFile"] == "/x"


def test_an_artifact_that_has_a_type_and_a_name_keeps_them():
    own = {"uri": "u", "name": "n", "type": {"instanceSchema": "title: tfx.Schema"}}
    given = {"inputs": {"artifacts": {"model": {"artifacts": [own]}}}, "outputs": {}}
    found = _Invocation.read(arguments(given, inputs=declared(model=MODEL)))
    assert found.executor_input["inputs"]["artifacts"]["model"]["artifacts"] == [own]


@pytest.mark.parametrize(
    "kind", [UNTYPED, {}, {"schemaTitle": "system.Dataset"}, {"schemaTitle": "no_such.Type"}]
)
def test_an_unknown_type_becomes_the_base_artifact_of_tfx(kind):
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as utils

    given = {"inputs": {"artifacts": artifacts(data=kind)}, "outputs": {}}
    inputs = {"artifacts": {"data": {"artifactType": kind}}}
    found = _Invocation.read(arguments(given, inputs=inputs)).executor_input
    parsed = json_format.ParseDict(found, pipeline_spec_pb2.ExecutorInput())
    (artifact,) = utils.parse_raw_artifact_dict(parsed.inputs.artifacts, {})["data"]
    assert artifact.uri == "s3://b/data"
    assert artifact.type_name == "Artifact"


def test_outputs_whose_names_begin_with_another_are_renamed_and_named_back(tmp_path):
    outputs = declared(model=MODEL, model_run=MODEL)
    names = output_names(["model", "model_run", "model_run_logs"])
    assert names["model_run"] == "output_model_run"
    found = list(names.values())
    assert not [a for a in found for b in found if a != b and a.startswith(b)]
    made = {"artifacts": {name: {} for name in names}}
    assert list(restore_names(made, found)["artifacts"]) == found
    given = {
        "inputs": {},
        "outputs": {
            "artifacts": artifacts(model=MODEL, output_model_run=MODEL),
            "outputFile": str(tmp_path / "output.json"),
        },
    }
    found = _Invocation.read(arguments(given, outputs=outputs))
    assert list(found.executor_input["outputs"]["artifacts"]) == ["model", "model_run"]
    written = {"artifacts": {"model": {}, "model_run": {"artifacts": [{"uri": "u"}]}}}
    (tmp_path / "output.json").write_text(json.dumps(written))
    found.restore_output_names()
    assert json.loads((tmp_path / "output.json").read_text()) == {
        "artifacts": {"model": {}, "output_model_run": {"artifacts": [{"uri": "u"}]}}
    }


def test_a_long_property_travels_compressed():
    columns = json.dumps([f"column_{n}" for n in range(20_000)])
    packed = _compress(columns)
    assert len(packed) < 64_000
    assert packed.isascii()
    given = {"inputs": {"parameterValues": {"custom_config": packed, "n": 3.0}}, "outputs": {}}
    found = _Invocation.read(arguments(given)).executor_input
    assert found["inputs"]["parameterValues"] == {"custom_config": columns, "n": 3.0}
    assert expand(columns) == columns


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


def small_spec(word="hello", **tasks):
    """Two containers and an importer; a parameter of the pipeline's own."""
    container = {"command": ["python", "-c", SCRIPT], "image": "x"}
    says = {**container, "args": ["{{$}}", "{{$.inputs.parameters['word']}}"]}
    out = {"artifacts": {"out": {"artifactType": MODEL}}, "parameters": {"out": {}}}
    word_in = {"word": {"componentInputParameter": "word"}}
    produced = {"taskOutputParameter": {"producerTask": "first", "outputParameterKey": "out"}}
    imported = {"taskOutputArtifact": {"producerTask": "import", "outputArtifactKey": "got"}}
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


def test_a_node_that_is_killed_says_so(tmp_path):
    spec = small_spec()
    spec["deploymentSpec"]["executors"]["says"]["container"] = {
        "command": ["python", "-c", "import os; os.kill(os.getpid(), 9)"]
    }
    with pytest.raises(NodeFailed, match=r"first ended by SIGKILL \(killed, .*memory"):
        replayed(tmp_path, spec).run()


def test_a_node_is_tried_as_often_as_the_spec_says_and_limited(tmp_path):
    spec, tried, again = small_spec(), tmp_path / "tried", []
    container = {"command": ["sh", "-c", f"[ -e {tried} ] && sleep 60; touch {tried}; exit 7"]}
    spec["deploymentSpec"]["executors"]["says"]["container"] = container
    spec["root"]["dag"]["tasks"]["first"]["retryPolicy"] = {"maxRetryCount": 1}
    limit = {"deploymentSpec": {"executors": {"says": {"activeDeadlineSeconds": "1"}}}}
    path = tmp_path / "limited.yaml"
    path.write_text(f"{json.dumps(spec)}\n---\n{json.dumps({'platforms': {'kubernetes': limit}})}")
    replay = Replay(
        CompiledSpec.read(path),
        tmp_path / "root",
        on_retry=lambda name, words: again.append((name, words)),
    )
    with pytest.raises(NodeFailed, match=r"first was ended after its timeout of 1 s 2 times"):
        replay.run()
    assert again == [("first", "ended with code 7")]


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"triggerPolicy": {"condition": "1 == 1"}}, "triggerPolicy"),
        ({"parameterIterator": {}}, "parameterIterator"),
        ({"inputs": {"artifacts": {"a": {"componentInputArtifact": "a"}}}}, "componentInputArt"),
        ({"componentRef": {"name": "graph"}}, "dag"),
        ({"componentRef": {"name": "other"}}, "googleCloudPipelineJob"),
    ],
)
def test_what_compile_never_writes_is_refused_before_anything_runs(tmp_path, part, named):
    spec = small_spec()
    spec["root"]["dag"]["tasks"]["first"].update(part)
    spec["components"] |= {"graph": {"dag": {}}, "other": {"executorLabel": "other"}}
    spec["deploymentSpec"]["executors"]["other"] = {"googleCloudPipelineJob": {}}
    with pytest.raises(ConfigError, match=f"first has {named}.*pipeline compile"):
        replayed(tmp_path, spec)
    assert not (tmp_path / "root").exists()


def test_parameters_have_the_pipelines_types_and_defaults(tmp_path):
    spec = small_spec()
    kinds = spec["root"]["inputDefinitions"]["parameters"]
    kinds["n"] = {"parameterType": "NUMBER_INTEGER"}
    for values, message in (
        ({}, r"n \(NUMBER_INTEGER\) has no value.*--parameter n=VALUE"),
        ({"n": "much"}, r"n=much: .* type NUMBER_INTEGER; .*--parameter n=3"),
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


@pytest.mark.parametrize("missing", ["", "s3://absent: this bucket does not exist."])
def test_a_node_that_fails_names_the_buckets_that_do_not_exist(monkeypatch, missing):
    def fails(argv):
        raise ValueError("s3://absent/x matches no file")

    monkeypatch.setattr(entry_point, "main", fails)
    monkeypatch.setattr(entry_point, "missing_buckets", lambda text: missing)
    with pytest.raises((ValueError, RuntimeError), match="matches no file") as caught:
        entry_point.exit_code(["s3://absent/x"])
    assert ("s3://absent: " in str(caught.value)) == bool(missing)


def test_the_command_reports_what_is_wrong_with_a_file(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n")
    assert main(["replay", "--spec", str(path)]) == 2
    assert "not a compiled pipeline" in capsys.readouterr().err
    spec = small_spec()
    spec["root"]["dag"]["tasks"]["first"]["inputs"]["parameters"]["word"] = {
        "runtimeValue": {"constant": "s3://other/data/x.csv"}
    }
    path.write_text(json.dumps(spec))
    assert main(["replay", "--spec", str(path), "--root", str(tmp_path / "root")]) == 2
    assert "--map s3://other/data=FOLDER" in capsys.readouterr().err


def replay_small(tmp_path, root):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small_spec()))
    return main(["replay", "--spec", str(path), "--root", str(root)])


@pytest.mark.parametrize("name", ["a b", "100%20", "ü 漢", "it's", "$HOME", "{a},b:c#d&e;f|g"])
def test_a_root_may_have_any_name_that_a_compiled_file_can_contain(tmp_path, name):
    assert replay_small(tmp_path, tmp_path / name) == 0


@pytest.mark.parametrize("part", ['"', "\\", "\n", "\t", "{{", "$(", "$$", "*", "?", "["])
@pytest.mark.parametrize("option", ["--root", "--map"])
def test_a_folder_that_a_compiled_file_cannot_contain_is_refused(tmp_path, capsys, option, part):
    folder = tmp_path / f"a{part}b"
    folder.mkdir()
    if option == "--root":
        assert replay_small(tmp_path, folder) == 2
    else:
        path = tmp_path / "small.json"
        path.write_text(json.dumps(small_spec()))
        assert main(["replay", "--spec", str(path), "--map", f"s3://bucket={folder}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{option} " in line
    assert f"has {part!r}" in line


def test_a_root_that_is_a_file_or_below_one_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for root, said in ((tmp_path / "file", "is a file"), (tmp_path / "file" / "x", "Not a direc")):
        assert replay_small(tmp_path, root) == 2
        line = capsys.readouterr().err.splitlines()[0]
        assert str(root) in line
        assert said in line


@pytest.mark.parametrize(
    ("mount", "code", "said"),
    [
        ("size=4m,ro", 2, "Read-only file system"),
        ("size=4k", 2, "No space left on device"),
        ("size=2m", 1, "No space left on device"),  # the first node fills it
    ],
)
def test_a_root_that_is_read_only_or_full_is_named(tmp_path, mount, code, said):
    """A small file system is mounted as the root, in a namespace of the command's own."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow mount namespaces")
    spec, root = small_spec(), tmp_path / "root"
    root.mkdir()
    fill = f"head -c 3000000 /dev/zero > {root}/big; exit 1"
    spec["deploymentSpec"]["executors"]["says"]["container"] = {"command": ["sh", "-c", fill]}
    (tmp_path / "small.json").write_text(json.dumps(spec))
    replay = [sys.executable, "-m", "pipeline", "replay", str(tmp_path / "small.json")]
    done = subprocess.run(
        [
            *(*unshare, "sh", "-c", f'mount -t tmpfs -o {mount} none {root} && exec "$@"', "sh"),
            *(*replay, "--root", str(root)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert f"--root {root}: cannot write there ({said})" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
