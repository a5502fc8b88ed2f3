"""run_fn on a GPU: files, steps, checkpoints, evaluation and export, on one plain Transform output.

In separate processes: the tests beside it cut the GPU into logical ones.
"""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.gpu

# Its train and eval split have two files each.
TRANSFORM = """
    import json, sys
    from pathlib import Path
    import small_transform

    made = small_transform.run_transform(Path(sys.argv[1]), small_transform.preprocessing_fn)
    print(json.dumps({"graph": made.graph, "train": made.train, "eval": made.eval}))
"""
RUN = """
    import json, sys, types
    import tensorflow as tf
    from trainer_module import run_fn

    data, folder, trainer = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    if trainer.get("strategy") == "cpu":
        tf.config.set_visible_devices([], "GPU")
        del trainer["strategy"]
    trained = run_fn(types.SimpleNamespace(
        train_files=[data["train"]], eval_files=[data["eval"]], transform_output=data["graph"],
        model_run_dir=folder + "/run", serving_model_dir=folder + "/serving", train_steps=0,
        custom_config={"trainer": {"label": "generous", "global_batch_size": 64, **trainer}},
    ))
    serve = tf.saved_model.load(folder + "/serving").signatures["serving_default"]
    print(json.dumps({
        "metrics": trained.metrics,
        "steps": trained.steps,
        "gpus": len(tf.config.list_logical_devices("GPU")),
        "served": serve.structured_outputs["outputs"].shape.as_list(),
    }))
"""
# A float32 rounds otherwise on a GPU, and TF32 keeps 10 bits of its factors.
SGD = {"optimizer": {"name": "sgd", "learning_rate": 0.05}, "epochs": 3, "micro_batch_size": 10}


@pytest.fixture(scope="module")
def data(in_own_process, tmp_path_factory):
    folder = tmp_path_factory.mktemp("transformed")
    return in_own_process(folder, TRANSFORM, folder)


@pytest.fixture(scope="module")
def on_the_cpu(in_own_process, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    return in_own_process(
        folder, RUN, json.dumps(data), folder, json.dumps({**SGD, "strategy": "cpu"})
    )


def test_it_ends_where_the_cpu_ends(in_own_process, data, on_the_cpu, tmp_path):
    """Reference: the same training on the CPU; the loss to 1e-3 relative after 30 steps of SGD."""
    trainer = json.dumps({**SGD, "strategy": "mirrored"})
    found = in_own_process(tmp_path, RUN, json.dumps(data), tmp_path, trainer)
    assert (found["gpus"], on_the_cpu["gpus"]) == (1, 0)
    assert found["steps"] == on_the_cpu["steps"] == 30
    assert found["metrics"]["loss"] == pytest.approx(on_the_cpu["metrics"]["loss"], rel=1e-3)
    assert found["served"] == [None, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "mixed_bfloat16", "jit_compile": True},
        {"micro_batch_size": "auto", "shuffle_buffer_rows": 40_000},
    ],
    ids=str,
)
def test_it_learns(in_own_process, data, tmp_path, options):
    trainer = {"epochs": 12, "optimizer": {"learning_rate": 0.01}, **options}
    found = in_own_process(tmp_path, RUN, json.dumps(data), tmp_path, json.dumps(trainer))
    assert found["gpus"] == 1
    # The label is a function of the features, but a tenth of the companies is missing.
    assert found["metrics"]["auc"] > 0.95
