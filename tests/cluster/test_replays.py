"""Pipelines compiled for both targets and replayed whole, command by command.

The first run of a target is that of docs/kubeflow.md or docs/vertex.md, as a newcomer follows them.
"""

from __future__ import annotations

import functools
import json
import re
import runpy
import subprocess
import sys
import time

import psutil
import pytest
import tensorflow as tf
import yaml
from attribution_files import check_attributions
from command_line import ROOT, run_command, run_pipeline
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
# A Trainer that saves after each call of the graph, and is started again.
KILLED = (
    "cluster.kubeflow.retries=1",
    "training.epochs=4",
    "training.steps_per_loop=5",
    "training.checkpoint_every_minutes=0.0001",
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


def kill_after_a_checkpoint(replay, root, before):
    """Kills the Trainer by SIGKILL once it has saved a checkpoint; returns its command line."""
    while replay.poll() is None:
        if {*root.glob("*/Trainer/**/ckpt-*.index")} - before:
            for process in psutil.Process(replay.pid).children(recursive=True):
                words = process.cmdline()
                if "pipeline.targets.entry_point" in words:
                    process.kill()
                    return words
        time.sleep(0.02)
    raise AssertionError("the replay ended before the Trainer had saved a checkpoint")


def exported(folder):
    """Returns the shape and the bytes of each variable of the model in a Trainer's folder.

    Sorted by them: a SavedModel numbers its variables in another order in each process.
    """
    (index,) = folder.glob("*/Format-Serving/variables/variables.index")
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    names = [n for n in reader.get_variable_to_shape_map() if n.startswith("_all_variables/")]
    values = [reader.get_tensor(name) for name in names]
    return sorted((value.shape, value.tobytes()) for value in values)


def pushed(root):
    return sorted(root.glob("serving_model/*/saved_model.pb"))


def nodes(printed):
    return re.findall(r"^(\S+): done in", printed, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A function from a target to the folder of its page's commands and what the replay printed."""

    @functools.cache
    def followed(target):
        clone = tmp_path_factory.mktemp(target)
        return clone, follow(target, clone)

    return followed


def prepared(printed):
    """The nodes before the Trainer."""
    after = {"Trainer", "Evaluator", "Pusher", "BlessedModelRecord"}
    done = [n for n in nodes(printed) if n not in after and "LatestBlessedModel" not in n]
    assert len(done) == 6
    return done


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_a_page_pushes_a_blessed_model_and_two_workers_train_a_worse_one(target, pages, tmp_path):
    """The launcher's processes here stand for the pods of the workers."""
    clone, first = pages(target)
    assert "blessed; compared with nothing: none was blessed before" in first
    artifacts = clone / "output" / "replay"
    root = artifacts / "chicago-taxi"
    assert len(pushed(root)) == 1

    file = tmp_path / "worse"
    resources = f"cluster.{target}.resources={{}}"  # Vertex has none for several workers
    compile_for(target, clone / "my.yaml", file, *WORSE, resources)
    import_what_is_done(file, root / "artifacts.jsonl", prepared(first))
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


def test_a_killed_trainer_continues_from_its_last_checkpoint(pages, tmp_path):
    """Reference: the same Trainer without a kill. Tolerance: none, bit for bit."""
    clone, first = pages("kubeflow")
    artifacts, output = clone / "output" / "replay", tmp_path / "replay.txt"
    root, spec = artifacts / "chicago-taxi", tmp_path / "spec"
    compile_for("kubeflow", clone / "my.yaml", spec, *KILLED)
    import_what_is_done(spec, root / "artifacts.jsonl", prepared(first))
    before = {*root.glob("*/Trainer/**/ckpt-*.index")}
    command = [sys.executable, "-m", "pipeline", "replay", "--spec", spec, "--root", artifacts]
    with output.open("w") as stream:
        replay = subprocess.Popen(command, cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT)
    try:
        words = kill_after_a_checkpoint(replay, root, before)
        while replay.poll() is None and "Trainer: done" not in output.read_text():
            time.sleep(0.1)
    finally:
        replay.terminate()  # what follows the Trainer is of no interest
        replay.wait()
    printed = output.read_text()
    assert re.search(r"^Trainer: done in .*attempt 2", printed, flags=re.MULTILINE), printed

    (trainer,) = (each for each in root.glob("*/Trainer") if f"{each}/" in " ".join(words))
    log = (trainer / "log.txt").read_text(errors="replace")
    # In the middle of the first epoch, so that it was saved because of the time.
    (step,) = re.findall(r"Continuing at step (\d+), epoch 1\b", log)
    assert int(step) >= 5

    straight = trainer.with_name("straight")
    straight.mkdir()
    code, printed = run_command(*(word.replace(f"{trainer}/", f"{straight}/") for word in words))
    assert code == 0, printed
    assert "Continuing" not in printed
    found, expected = exported(trainer), exported(straight)
    assert len(expected) > 5
    assert found == expected


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
