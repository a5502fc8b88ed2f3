"""SIGKILL in each phase of `run_fn`: in steps, in a checkpoint, in evaluation, in export.

Reference: the run that was never killed, bit for bit: the exported variables, those of the last
checkpoint (optimizer, moving average, best epoch), the metrics and their history. Equal bits of a
shuffled run mean that each row was seen as often. Of two workers one is killed; the other exits.
One run reads TFRecord files, the other Parquet files, and one more reads pictures.
"""

from __future__ import annotations

import functools
import json
import random

import parquet_files
import pytest
import small_transform
import tensorflow as tf
from on_workers import command, environment, on_workers
from trains import PHASES

from trainer_module.devices.local_cluster import WorkersFailed, launch
from transform import preprocessing_fn

pytestmark = pytest.mark.distributed

TRAINER = {
    "label": "generous",
    "global_batch_size": 50,
    "micro_batch_size": 10,
    "epochs": 5,
    "steps_per_loop": 2,
    "checkpoint_every_steps": 4,
    "early_stopping": {"patience_epochs": 3},
    "ema_momentum": 0.9,
    "model": {"dropout": 0.1},
}


@pytest.fixture(scope="module")
def transformed(tmp_path_factory):
    """Transform's output in TFRecords and in Parquet files."""
    folder = tmp_path_factory.mktemp("tfrecord")
    records = small_transform.run_transform(folder, small_transform.preprocessing_fn)
    return records, parquet_files.as_parquet(records, tmp_path_factory.mktemp("parquet"))


def values(path):
    """Shape and bytes of each saved variable; the object graph names files and the position times.

    They are sorted: Keras' archive numbers variables in the order of a set.
    """
    reader = tf.train.load_checkpoint(str(path))
    names = set(reader.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH", "position"}
    tensors = [reader.get_tensor(name) for name in names]
    return sorted((tensor.shape, tensor.tobytes()) for tensor in tensors)


def outcome(folder, workers, text):
    """The result of a run to its end, and its variables."""
    sent = on_workers("trains", folder, text, workers=workers)
    (last,) = folder.glob("run/checkpoints/*/checkpoint")
    saved = tf.train.latest_checkpoint(str(last.parent))
    exported = folder / "serving" / "variables" / "variables"
    return [dict(each)["result"] for each in sent], values(saved), values(exported)


def kill_one(folder, workers, text, phase, draw):
    """A run of which one worker is killed in a phase."""
    # Only the chief exports; the others wait for it.
    worker = 0 if phase == "export" else draw.randrange(workers)
    times = 1 if phase == "export" else draw.randint(2, 4)
    with pytest.raises(WorkersFailed) as caught:
        launch(
            command("trains", folder, text),
            workers=workers,
            env=environment(KILL=f"{worker} {phase} {times} {draw.uniform(0, 0.02):.4f}"),
            on_line=lambda name, line: None,
        )
    codes = {each.name: each.code for each in caught.value.failed}
    assert codes.pop(f"worker {worker}") == -9
    assert list(codes.values()) == [75] * (workers - 1)


def settings(made, workers, **trainer):
    data = {"graph": made.graph, "train": made.train, "eval": made.eval}
    strategy = "one_device" if workers == 1 else "multi_worker"
    return json.dumps({"data": data, "trainer": {**TRAINER, **trainer, "strategy": strategy}})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_killed_in_each_phase_ends_with_the_same_bits(transformed, tmp_path, workers):
    text = settings(transformed[workers - 1], workers)
    expected = outcome(tmp_path / "whole", workers, text)
    draw = random.Random(workers)
    for phase in PHASES:
        kill_one(tmp_path / "killed", workers, text, phase, draw)
    assert outcome(tmp_path / "killed", workers, text) == expected


PICTURE = {"name": "p", "columns": "picture", "encode": {"image": {"height": 8, "width": 8}}}
NAME = {"name": "n", "columns": "company", "encode": {"tokens": {"split": "bytes"}}}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("group", "model"),
    [
        (PICTURE, {"kind": "conv", "filters": [4, 4]}),
        (NAME, {"kind": "transformer", "width": 8, "heads": 2, "blocks": 1}),
    ],
    ids=["pictures", "texts"],
)
def test_two_workers_train_pictures_and_texts_as_one_does(tmp_path, group, model):
    """To 1e-5 in float32; and after a kill in an epoch as without it, bit for bit."""
    features = {"groups": [group], "label": {"column": "tips", "kind": "regression"}}
    transform = functools.partial(preprocessing_fn, custom_config={"features": features})
    made = small_transform.run_transform(tmp_path, transform, pictures=group is PICTURE)
    optimizer = {"name": "sgd", "learning_rate": 0.05}
    one, two = (
        settings(made, n, label=None, epochs=3, optimizer=optimizer, model={**model, "dropout": 0})
        for n in (1, 2)
    )
    (alone, *_), _, _ = outcome(tmp_path / "alone", 1, one)
    expected = outcome(tmp_path / "whole", 2, two)
    assert expected[0][0]["steps"] == alone["steps"]
    for name, values_alone in alone["history"].items():
        assert expected[0][0]["history"][name] == pytest.approx(values_alone, rel=1e-5)
    kill_one(tmp_path / "killed", 2, two, "steps", random.Random(3))
    assert outcome(tmp_path / "killed", 2, two) == expected
