"""Pipelines compiled for both targets and replayed whole, command by command."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
import tfx
from attribution_files import check_attributions
from command_line import ROOT, TAXI, run_pipeline

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

DATA = Path(tfx.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple"
PICTURES = ROOT / "examples" / "images"
BUCKETS = {"kubeflow": "s3://bucket", "vertex": "gs://bucket"}
# Alone it would be good enough; beside the one before it is not.
WORSE = (
    "training.epochs=1",
    "evaluation.thresholds.auc.lower_bound=0.5",
    "evaluation.thresholds.binary_accuracy.lower_bound=0.5",
)

EXPLAIN = "explain={rows: 60, steps: 20}"


def replay(target, folder, *overrides, done=(), config=TAXI, data=DATA / "data.csv"):
    """Compiles and replays; returns the code and what was printed.

    What nodes of `done` have made is imported from the replay before.
    """
    bucket = BUCKETS[target]
    settings = {
        f"cluster.{target}.image": "registry.example/tfx-largebatch:1.0",
        f"cluster.{target}.pipeline_root": f"{bucket}/root",
        f"cluster.{target}.data_path": f"{bucket}/data/{data.name}",
    }
    given = [f"--set={name}={value}" for name, value in settings.items()]
    file = folder / f"pipeline-{target}.yaml"
    code, printed = run_pipeline(
        *("compile", "--target", target, "--config", config, "--output", file),
        *given,
        *(f"--set={each}" for each in overrides),
    )
    assert code == 0, printed
    if done:
        import_what_is_done(file, folder / "root" / "chicago-taxi" / "artifacts.jsonl", done)
    # What is imported in place of ExampleGen reads no data.
    places = [] if done else ["--map", f"{bucket}/data={data.parent}"]
    return run_pipeline("replay", "--spec", file, "--root", folder / "root", *places)


def import_what_is_done(file, records, done):
    """Puts an importer into the compiled job for each artifact that nodes of it made before."""
    job = json.loads(file.read_text())
    spec = job["pipelineSpec"]
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
    file.write_text(json.dumps(job))


def pushed(folder, name="chicago-taxi"):
    return sorted((folder / "root" / name / "serving_model").glob("*/saved_model.pb"))


def check_explained(folder):
    (artifact,) = folder.glob("root/chicago-taxi/*/InputGradients/attributions")
    check_attributions(artifact, rows=60)


def nodes(printed):
    return re.findall(r"^(\S+): done in", printed, flags=re.MULTILINE)


def test_kubeflow_pushes_a_blessed_model_and_compares_a_worse_one_with_it(tmp_path):
    code, printed = replay("kubeflow", tmp_path)
    assert code == 0, printed
    assert "blessed; compared with nothing: none was blessed before" in printed
    assert len(pushed(tmp_path)) == 1
    assert {"LatestBlessedModel", "Transform", "Trainer", "BlessedModelRecord"} <= set(
        nodes(printed)
    )
    code, printed = replay("kubeflow", tmp_path, *WORSE)
    assert code == 3, printed
    assert "not blessed; compared with the latest blessed model" in printed
    assert len(pushed(tmp_path)) == 1


def test_kubeflow_trains_on_two_workers_of_a_tfjob(tmp_path):
    """The launcher's processes here stand for the job's pods."""
    code, printed = replay("kubeflow", tmp_path, "training.workers=2", EXPLAIN)
    assert code == 0, printed
    assert len(pushed(tmp_path)) == 1
    check_explained(tmp_path)
    (log,) = tmp_path.glob("root/chicago-taxi/*/Trainer/log.txt")
    lines = log.read_text(errors="replace").splitlines()
    assert {"[chief]", "[worker-0]"} <= {line.partition(" ")[0] for line in lines}
    assert lines[-1] == "every process ended well"


def test_kubeflow_trains_on_pictures(tmp_path):
    runpy.run_path(str(PICTURES / "write_data.py"))["main"](tmp_path / "data" / "digits")
    code, printed = replay(
        *("kubeflow", tmp_path, "training.epochs=1"),
        "evaluation.thresholds.sparse_categorical_accuracy.lower_bound=0.0",
        "evaluation.require_better_than_constant=false",
        config=PICTURES / "pipeline.yaml",
        data=tmp_path / "data" / "digits",
    )
    assert code == 0, printed
    assert len(pushed(tmp_path, "digits")) == 1


def test_vertex_trains_on_two_workers_runs_the_driver_and_resolves_its_baseline(tmp_path):
    code, printed = replay("vertex", tmp_path, "training.workers=2", EXPLAIN)
    assert code == 0, printed
    check_explained(tmp_path)
    assert {"LatestBlessedModel-model-resolver", "ArrowExampleGen", "Pusher"} <= set(nodes(printed))
    assert len(pushed(tmp_path)) == 1
    (log,) = tmp_path.glob("root/chicago-taxi/*/ArrowExampleGen/log.txt")
    assert "Calculated fingerprint" in log.read_text(errors="replace")
    workers = tmp_path.glob("root/chicago-taxi/*/Trainer/workers/*.log")
    assert sorted(path.name for path in workers) == ["chief.log", "worker-0.log"]
    again = {"Trainer", "Evaluator", "InputGradients", "Pusher"}
    done = [n for n in nodes(printed) if n not in again and "resolver" not in n]
    assert len(done) == 6
    code, printed = replay("vertex", tmp_path, *WORSE, done=done)
    assert code == 3, printed
    assert "not blessed; compared with the latest blessed model" in printed
    assert len(pushed(tmp_path)) == 1
