"""Conditions, nested graphs, exit handlers, retries and timeouts, as KFP and TFX compile them."""

import json  # and no annotations from __future__: KFP reads those of components as types
import re
from pathlib import Path
from typing import Optional

import pytest
import yaml

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.replay.conditions import ConditionError, parsed
from pipeline.replay.execution import Host
from pipeline.replay.replay import NodeFailed, Replay
from pipeline.targets.compiled_spec import CompiledSpec

# Fails if asked to, each time or the first time (again:FILE; a pod's own disk is empty each time);
# else its output is its input.
SAYS = """
import os, pathlib, sys, time
word, output = sys.argv[1:]
print("says", word, os.environ.get("TONE", ""))
os.makedirs(os.path.dirname(output), exist_ok=True)
word, _, file = word.partition(":")
tried = pathlib.Path(file)
if word == "late":
    time.sleep(60)
if word == "fail" or (word == "again" and not tried.exists()):
    tried.touch()
    sys.exit(7)
pathlib.Path(output).write_text(word)
"""


@pytest.fixture(scope="module")
def by_kfp(tmp_path_factory):
    """A pipeline written by hand with KFP's SDK, compiled by it."""
    from kfp import compiler, dsl

    @dsl.container_component
    def say(word: str, said: dsl.OutputPath(str)):  # pyright: ignore
        return dsl.ContainerSpec(image="x:1", command=["python", "-c", SAYS], args=[word, said])

    @dsl.container_component
    def at_exit(status: dsl.PipelineTaskFinalStatus, said: dsl.OutputPath(str)):  # pyright: ignore
        return dsl.ContainerSpec(image="x:1", command=["python", "-c", SAYS], args=[status, said])

    @dsl.pipeline(name="by-hand")
    def by_hand(n: int, first: str = "heads", rate: float = 0.5, loud: bool = True):
        with dsl.ExitHandler(at_exit().set_display_name("end")):
            side = say(word=first).set_retry(2).set_env_variable("TONE", "calm")
            with dsl.If(side.output == "heads"):
                say(word=first).set_display_name("is-heads")
                with dsl.If(rate > 0.25):
                    say(word="often")
            with dsl.Elif(n >= 3):
                say(word="many")
            with dsl.Else():
                say(word="few")
            with dsl.If(loud == True):  # noqa: E712
                said = say(word="loud")
                say(word=said.output)

    path = tmp_path_factory.mktemp("kfp") / "by-hand.yaml"
    compiler.Compiler().compile(by_hand, str(path))
    return path


def replayed(path, folder, **parameters):
    """What each node said, in order; None of those that were skipped."""
    texts = {name: str(value) for name, value in parameters.items()}
    replay = Replay(CompiledSpec.read(path), folder / "root", parameters=texts)
    return [(n.name, n.log.read_text().split()[1] if n.log else None) for n in replay.run()]


def test_branches_run_where_their_conditions_hold(by_kfp, tmp_path):
    """Branches are graphs within graphs; what is in one that is skipped never appears."""
    said = replayed(by_kfp, tmp_path, n=1)
    assert said.index(("say", "heads")) < said.index(("say-3", "often"))
    assert {word for _, word in said} >= {"often", "loud"}
    assert [name for name, word in said if word is None] == ["condition-5", "condition-6"]
    assert said[-1][0] == "at-exit"
    assert json.loads(said_at_exit(tmp_path))["state"] == "SUCCEEDED"
    many = {word for _, word in replayed(by_kfp, tmp_path, n=3, first="tails", loud="false")}
    assert "many" in many
    assert not many & {"few", "heads", "often", "loud"}
    few = {word for _, word in replayed(by_kfp, tmp_path, n=2, first="tails", rate=0.1)}
    assert "few" in few
    assert "many" not in few


def said_at_exit(folder):
    log = max(folder.glob("root/by-hand/*/at-exit/log.txt"), key=lambda path: path.stat().st_mtime)
    return log.read_text().removeprefix("says ").strip()


def test_parameters_have_the_pipelines_types_and_defaults(by_kfp, tmp_path):
    with pytest.raises(
        ConfigError, match=r"n \(NUMBER_INTEGER\) has no value.*--parameter n=VALUE"
    ):
        replayed(by_kfp, tmp_path)
    with pytest.raises(ConfigError, match=r"n=much: .* type NUMBER_INTEGER; .*--parameter n=3"):
        replayed(by_kfp, tmp_path, n="much")
    with pytest.raises(ConfigError, match=r"m: the pipeline has no parameter.*n, first|first.*n"):
        replayed(by_kfp, tmp_path, n=1, m=2)


def test_a_node_is_tried_as_often_as_the_spec_says(by_kfp, tmp_path):
    again = []
    replay = Replay(
        CompiledSpec.read(by_kfp),
        tmp_path,
        parameters={"n": "1", "first": f"again:{tmp_path / 'tried'}"},
        on_retry=lambda name, words: again.append((name, words)),
    )
    first = next(node for node in replay.run() if node.name == "say")
    assert again == [("say", "ended with code 7")]
    assert first.attempts == 2
    assert first.log is not None
    lines = first.log.read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["says again", "says again"]


def test_the_exit_handler_runs_after_a_failure_and_gets_its_status(by_kfp, tmp_path, capsys):
    arguments = ["replay", "--spec", str(by_kfp), "--root", str(tmp_path / "root")]
    assert main([*arguments, "--parameter", "n=1", "--parameter", "first=fail"]) == 1
    reported = "".join(capsys.readouterr())
    assert reported.count("say: ended with code 7; started again") == 2
    assert "say failed:\n" in reported
    assert "  says fail calm\n" in reported
    assert "at-exit: done" in reported
    status = json.loads(said_at_exit(tmp_path))
    assert status["state"] == "FAILED"
    assert "say ended with code 7 3 times" in status["error"]["message"]


def test_a_timeout_of_kubernetes_ends_the_node(by_kfp, tmp_path):
    spec = yaml.safe_load(by_kfp.read_text())
    label = spec["components"]["comp-say"]["executorLabel"]
    platform = {"deploymentSpec": {"executors": {label: {"activeDeadlineSeconds": "1"}}}}
    path = tmp_path / "limited.yaml"
    path.write_text(yaml.safe_dump_all([spec, {"platforms": {"kubernetes": platform}}]))
    with pytest.raises(NodeFailed, match=r"say was ended after its timeout of 1 s"):
        replayed(path, tmp_path, n=1, first="late")


def test_optional_arguments_are_left_out_where_their_input_is_not_given(tmp_path):
    from kfp import compiler, dsl

    @dsl.container_component
    def report(word: str, name: Optional[str] = None):  # noqa: UP045
        named = dsl.IfPresentPlaceholder(input_name="name", then=["by", name], else_=["by no one"])
        mark = dsl.IfPresentPlaceholder(input_name="name", then=dsl.ConcatPlaceholder([name, "!"]))
        reported = dsl.ConcatPlaceholder(["says ", word])
        command = ["python", "-c", "import sys; print('|'.join(sys.argv[1:]))"]
        return dsl.ContainerSpec(image="x:1", command=command, args=[reported, named, mark])

    @dsl.pipeline(name="optional")
    def optional(word: str = "hi"):
        report(word=word)
        report(word=word, name="me")

    path = tmp_path / "optional.yaml"
    compiler.Compiler().compile(optional, str(path))
    with pytest.raises(NodeFailed, match=r'get the text \{"Concat"'):  # as Kubeflow has it
        Replay(CompiledSpec.read(path), tmp_path / "root").run()
    nodes = Replay(CompiledSpec.read(path), tmp_path / "lenient", host=Host()).run()
    assert [node.log.read_text() for node in nodes if node.log] == [
        "says hi|by no one\n",
        "says hi|by|me|me!\n",
    ]


MAKES = """
import json, os, sys
reported, blessed = json.loads(sys.argv[1]), float(sys.argv[2])
(place,) = reported["outputs"]["artifacts"]["made"]["artifacts"]
made = {"made": {"artifacts": [{"uri": place["uri"], "metadata": {"blessed": blessed}}]}}
os.makedirs(os.path.dirname(reported["outputs"]["outputFile"]), exist_ok=True)
with open(reported["outputs"]["outputFile"], "w") as stream:
    json.dump({"artifacts": made}, stream)
"""


def by_tfx(path, *, blessed=None, has_exit_handler=False):
    """TFX's own `Cond` and exit handler, compiled by its runner; None: a runtime parameter."""
    from tfx.dsl.component.experimental import placeholders
    from tfx.dsl.component.experimental.container_component import create_container_component
    from tfx.dsl.experimental.conditionals.conditional import Cond
    from tfx.dsl.placeholder.placeholder import logical_not
    from tfx.orchestration.data_types import RuntimeParameter
    from tfx.orchestration.kubeflow import decorators
    from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner as kubeflow
    from tfx.orchestration.pipeline import Pipeline
    from tfx.types.standard_artifacts import ModelBlessing

    def node(name, script, *arguments, **fields):
        command = ["python", "-c", script, *arguments]
        return create_container_component(name=name, image="x:1", command=command, **fields)

    make = node(
        *("Make", MAKES, "{{$}}", placeholders.InputValuePlaceholder("blessed")),
        outputs={"made": ModelBlessing},
        parameters={"blessed": int},
    )
    take = node(
        *("Take", MAKES, "{{$}}", "1"),
        inputs={"given": ModelBlessing},
        outputs={"made": ModelBlessing},
    )
    # Not of the artifact that the condition is about: TFX 1.16 gives that two names.
    begin = node("Begin", MAKES, "{{$}}", "1", outputs={"made": ModelBlessing})
    report = node(
        *("Report", "import sys; print('says', sys.argv[1])"),
        placeholders.InputValuePlaceholder("status"),
        parameters={"status": str},
    )
    value = RuntimeParameter("blessed", ptype=int) if blessed is None else blessed
    made = make(blessed=value)
    found = made.outputs["made"].future()[0]
    with Cond(found.custom_property("blessed") == 1):
        first = begin().with_id("WhereBlessed")
        with Cond(found.uri != "nowhere"):
            second = take(given=first.outputs["made"]).with_id("AfterIt")
    with Cond(logical_not(found.custom_property("blessed") == 1)):
        third = begin().with_id("WhereNot")
    pipeline = Pipeline("by-tfx", pipeline_root="", components=[made, first, second, third])
    config = kubeflow.KubeflowV2DagRunnerConfig(default_image="x:1", use_pipeline_spec_2_1=True)
    runner = kubeflow.KubeflowV2DagRunner(config)
    if has_exit_handler:
        runner.set_exit_handler(report(status=decorators.FinalStatusStr()))
    path.write_text(json.dumps(runner.run(pipeline, write_out=False)))
    return ["replay", "--spec", str(path), "--root", str(path.parent / "root")]


@pytest.mark.slow
def test_what_tfx_makes_conditional_follows_the_artifacts_properties(tmp_path, capsys):
    arguments = by_tfx(tmp_path / "by-tfx.json")
    assert main([*arguments, "--parameter", "blessed=1"]) == 0
    reported = capsys.readouterr().out
    assert "AfterIt: done" in reported
    assert "WhereNot: skipped, since not !((inputs.artifacts['" in reported
    assert main([*arguments, "--parameter", "blessed=0"]) == 0
    reported = capsys.readouterr().out
    assert "WhereNot: done" in reported
    assert "AfterIt: skipped, since WhereBlessed was skipped" in reported
    # TFX puts all nodes into a separate graph; its exit handler is above it.
    assert main(by_tfx(tmp_path / "ends.json", blessed=0, has_exit_handler=True)) == 0
    assert "WhereNot: done" in capsys.readouterr().out
    (log,) = tmp_path.glob("root/by-tfx/*/Report/log.txt")
    assert json.loads(log.read_text().removeprefix("says "))["state"] == "SUCCEEDED"


GIVEN = {
    "inputs": {
        "parameterValues": {"n": 3, "word": "a", "rate": 0.5, "flag": True},
        "artifacts": {"m": {"artifacts": [{"uri": "/m", "metadata": {"blessed": 1}}]}},
    }
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("inputs.parameter_values['n'] == 3.0", True),
        ("double(int(inputs.parameter_values['n'])) < 2.5", False),
        ("inputs.parameters['n'].int_value > -2", True),
        ("inputs.parameter_values[\"word\"] != 'b' && inputs.parameter_values['flag']", True),
        ("!(inputs.parameter_values['word'] == 'a') || inputs.parameter_values['rate']>=1", False),
        ("false && true || true", True),
        ("!false == true && '!a && b' != 'a' && -1 < 1", True),
        ("(inputs.artifacts['m'].artifacts[0].uri + '/x' ==\n'/m/x')", True),
        ("inputs.artifacts['m'].artifacts[0].metadata['blessed'] == 1.0", True),
    ],
)
def test_conditions_are_judged(text, holds):
    assert parsed(text).holds(GIVEN) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size(inputs.artifacts) > 1", "has 'size(inputs.artifacts)', which is unknown"),
        ("inputs.parameter_values['n'] in [1]", "'] in [1]\", which is unknown"),
        ("1 < 2 < 3", "has '1 < 2 < 3', which is unknown"),
        ("inputs == 1", "has 'inputs', which is unknown"),
        ("true and true", "has a form that is unknown"),
        ("true # true", "has a form that is unknown"),
        ("inputs.parameter_values['n'] ? true : false", "has a form that is unknown"),
        ("inputs.parameter_values['n'] ==", "has a form that is unknown"),
        # kfp 2.13 compiles `word == n` of a string and an int to this.
        (
            "inputs.parameter_values['word'] == 'int(inputs.parameter_values['n'])'",
            "a form that is unknown",
        ),
        ("'a\nb' == 'a b'", "has a form that is unknown"),
        (r"'\d' == 'd'", "has a form that is unknown"),
        ("-true < 1.0", "uses True as a number"),
        ("-'3' < 1.0", "uses '3' as a number"),
        ("inputs.parameter_values['m'] == 1", "names 'm', which is not there: there are n, word"),
        ("inputs.parameter_values['word'] == 1", "'a' and 1.0, which have different types"),
        ("inputs.parameter_values['n']", "is 3.0, neither true nor false"),
        ("!inputs.parameter_values['n']", "uses 3.0 as true or false"),
        ("double(inputs.parameter_values['word']) > 1", "uses 'a' as a number"),
    ],
)
def test_other_conditions_are_refused_by_what_is_unknown_in_them(text, message):
    with pytest.raises(ConditionError, match=re.escape(message)):
        parsed(text).holds(GIVEN)


def test_what_replay_does_not_know_is_refused_before_anything_runs(by_kfp, tmp_path):
    spec = yaml.safe_load(by_kfp.read_text())
    tasks = spec["components"]["comp-condition-3"]["dag"]["tasks"]
    (name,) = tasks
    tasks[name]["parameterIterator"] = {"itemInput": "x", "items": {"raw": "[1, 2]"}}
    path = tmp_path / "loop.yaml"
    path.write_text(yaml.safe_dump(spec))
    with pytest.raises(ConfigError, match=r"runs once for each item .*ParallelFor"):
        replayed(path, tmp_path, n=1)
    del tasks[name]["parameterIterator"]
    tasks[name]["triggerPolicy"] = {"condition": "size('x') == 1"}
    path.write_text(yaml.safe_dump(spec))
    with pytest.raises(
        ConfigError, match=r"has \"size\('x'\)\", which is unknown here\. Replay the pipeline"
    ):
        replayed(path, tmp_path, n=1)
    assert not Path(tmp_path, "root").exists()


def test_the_pools_of_a_custom_job_are_processes_with_tf_config(tmp_path):
    script = "import os, sys; print(sys.argv[1], os.environ['TF_CONFIG'])"
    container = {"imageUri": "x:1", "command": ["python", "-c", script], "args": ["{{$}}"]}
    pools = [{"containerSpec": container, "replicaCount": count} for count in ("1", "2")]
    spec = {
        "pipelineInfo": {"name": "workers"},
        "root": {"dag": {"tasks": {"Trainer": {"componentRef": {"name": "Trainer"}}}}},
        "components": {"Trainer": {"executorLabel": "x"}},
        "deploymentSpec": {
            "executors": {
                "x": {"customJob": {"customJob": {"jobSpec": {"workerPoolSpecs": pools}}}}
            }
        },
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"pipelineSpec": spec}))
    (node,) = Replay(CompiledSpec.read(path), tmp_path / "root").run()
    assert node.log is not None
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
    path.write_text(json.dumps({"pipelineSpec": spec}))
    with pytest.raises(NodeFailed, match=r"Trainer ended with code 3 \(its (chief|worker \d)\)"):
        Replay(CompiledSpec.read(path), tmp_path / "root").run()
