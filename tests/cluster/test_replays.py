"""Pipelines compiled for both targets and replayed whole, command by command.

The first run of a target is that of docs/kubeflow.md or docs/vertex.md, as a newcomer follows them.
"""

from __future__ import annotations

import json
import re
import runpy

import pytest
import yaml
from attribution_files import check_attributions
from command_line import ROOT, run_pipeline
from doc_pages import difference, execute, fresh_clone, page_commands

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SHOWN_CLONE = "/home/me/tfx-largebatch"
"""Where the pages' outputs say that the clone is."""
# On two workers. Alone the model would be good enough; beside the one before it is not.
WORSE = (
    "training.workers=2",
    "training.epochs=1",
    "explain={rows: 60, steps: 20}",
    "evaluation.thresholds.auc.lower_bound=0.5",
    "evaluation.thresholds.binary_accuracy.lower_bound=0.5",
)


def follow(target, clone):
    """Executes a page up to its replay; returns what that printed."""
    page = (ROOT / "docs" / f"{target}.md").read_text(encoding="utf-8")
    commands = page_commands(page)
    (replay,) = (i for i, each in enumerate(commands) if " replay " in each.text)
    last = execute(commands[: replay + 1], fresh_clone(clone))[-1]
    assert last.command == commands[replay]
    wrong = difference(last.command.shown, last.output, {str(clone): SHOWN_CLONE})
    assert not wrong, wrong
    return last.output


def compile_for(target, config, file, *overrides):
    code, printed = run_pipeline(
        *("compile", "--target", target, "--config", config, "--output", file),
        *(f"--set={each}" for each in overrides),
    )
    assert code == 0, printed


def import_what_is_done(file, records, done):
    """Puts an importer into the compiled job for each artifact that nodes of it made before."""
    documents = list(yaml.safe_load_all(file.read_text()))
    spec = documents[0].get("pipelineSpec", documents[0])
    tasks, executors = spec["root"]["dag"]["tasks"], spec["deploymentSpec"]["executors"]
    made = {}
    for line in records.read_text().splitlines():
        artifact = json.loads(line)
        made[tuple(artifact["name"].split("/")[-2:])] = artifact
    for name in done:
        del tasks[name]
    for task in list(tasks.values()):
        for source in task.get("inputs", {}).get("artifacts", {}).values():
            place = source["taskOutputArtifact"]
            key = place["outputArtifactKey"]
            if place["producerTask"] not in done:
                continue
            artifact = made[place["producerTask"], key]
            name = place["producerTask"] = f"{place['producerTask']}-{key}"
            tasks[name] = {"componentRef": {"name": name}}
            outputs = {"artifacts": {key: {"artifactType": artifact["type"]}}}
            spec["components"][name] = {"executorLabel": name, "outputDefinitions": outputs}
            importer = {
                "artifactUri": {"constant": artifact["uri"]},
                "typeSchema": artifact["type"],
            }
            executors[name] = {"importer": {**importer, "metadata": artifact["metadata"]}}
        task["dependentTasks"] = [n for n in task.get("dependentTasks", []) if n not in done]
    file.write_text(yaml.safe_dump_all(documents))


def pushed(root):
    return sorted(root.glob("serving_model/*/saved_model.pb"))


def nodes(printed):
    return re.findall(r"^(\S+): done in", printed, flags=re.MULTILINE)


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_a_page_pushes_a_blessed_model_and_two_workers_train_a_worse_one(target, tmp_path):
    """The launcher's processes here stand for the pods of the workers."""
    first = follow(target, tmp_path)
    assert "blessed; compared with nothing: none was blessed before" in first
    artifacts = tmp_path / "output" / "replay"
    root = artifacts / "chicago-taxi"
    assert len(pushed(root)) == 1

    file = tmp_path / "worse"
    resources = f"cluster.{target}.resources={{}}"  # Vertex has none for several workers
    compile_for(target, tmp_path / "my.yaml", file, *WORSE, resources)
    again = {"Trainer", "Evaluator", "Pusher", "BlessedModelRecord"}
    done = [n for n in nodes(first) if n not in again and "LatestBlessedModel" not in n]
    assert len(done) == 6
    import_what_is_done(file, root / "artifacts.jsonl", done)
    code, printed = run_pipeline("replay", "--spec", file, "--root", artifacts)
    assert code == 3, printed
    assert "not blessed; compared with the latest blessed model" in printed
    assert len(pushed(root)) == 1
    (explained,) = root.glob("*/InputGradients/attributions")
    check_attributions(explained, rows=60)
    if target == "kubeflow":
        assert {"LatestBlessedModel", "BlessedModelRecord"} <= set(nodes(first + printed))
        (log,) = (each for each in root.glob("*/Trainer/log.txt") if "[chief]" in each.read_text())
        lines = log.read_text().splitlines()
        assert {"[chief]", "[worker-0]"} <= {line.partition(" ")[0] for line in lines}
        assert lines[-1] == "every process ended well"
    else:
        assert "LatestBlessedModel-model-resolver" in nodes(printed)
        (log,) = root.glob("*/ArrowExampleGen/log.txt")
        assert "Calculated fingerprint" in log.read_text()
        workers = root.glob("*/Trainer/workers/*.log")
        assert sorted(path.name for path in workers) == ["chief.log", "worker-0.log"]


def test_kubeflow_trains_on_pictures(tmp_path):
    example, digits = ROOT / "examples" / "images", tmp_path / "data" / "digits"
    runpy.run_path(str(example / "write_data.py"))["main"](digits)
    for path in sorted(digits.rglob("*.png"))[::2]:  # half of them take less time
        path.unlink()
    compile_for(
        *("kubeflow", example / "pipeline.yaml", tmp_path / "spec"),
        "cluster.kubeflow.image=registry.example/tfx-largebatch:1.0",
        "cluster.kubeflow.pipeline_root=s3://bucket/root",
        "cluster.kubeflow.data_path=s3://bucket/data/digits",
        "training.epochs=1",
        "training.global_batch_size=256",
        "evaluation.thresholds.sparse_categorical_accuracy.lower_bound=0.0",
        "evaluation.require_better_than_constant=false",
    )
    places = ("--root", tmp_path / "root", "--map", f"s3://bucket/data={digits.parent}")
    code, printed = run_pipeline("replay", "--spec", tmp_path / "spec", *places)
    assert code == 0, printed
    assert len(pushed(tmp_path / "root" / "digits")) == 1
