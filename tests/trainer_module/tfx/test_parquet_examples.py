"""run_fn on an artifact of Parquet files, called by TFX's own Trainer executor."""

from __future__ import annotations

import json
import types
from pathlib import Path

import numpy as np
import parquet_files
import pytest
import tensorflow as tf

from trainer_module import run_fn

TRAINER = {
    "label": "generous",
    "global_batch_size": 32,
    "optimizer": {"learning_rate": 0.01},
    "tensorboard": False,
    "model": {"hidden_units": [8]},
}


@pytest.fixture(scope="module")
def parquet(transformed, tmp_path_factory):
    """The folder of an Examples artifact with splits of two files each."""
    folder = tmp_path_factory.mktemp("examples")
    parquet_files.as_parquet(transformed, folder)
    for split in ("train", "eval"):
        (folder / split).rename(folder / f"Split-{split}")
    return folder


def artifact(kind, uri, **properties):
    made = kind()
    made.uri = str(uri)
    for name, value in properties.items():
        setattr(made, name, value)
    return made


def train_by_tfx(examples: Path, graph: str, folder: Path, trainer: dict) -> None:
    """Run TFX's Trainer executor."""
    from tfx.components.trainer import executor
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import artifact_utils, standard_artifacts

    splits = artifact_utils.encode_split_names(["train", "eval"])
    made = artifact(standard_artifacts.Examples, examples, split_names=splits)
    examples_utils.set_payload_format(made, example_gen_pb2.FORMAT_PARQUET)
    examples_utils.set_file_format(made, "FILE_FORMAT_PARQUET")
    executor.GenericExecutor(
        executor.GenericExecutor.Context(tmp_dir=str(folder / "tmp"), unique_id="1")
    ).Do(
        {
            "examples": [made],
            "transform_graph": [artifact(standard_artifacts.TransformGraph, graph)],
        },
        {
            "model": [artifact(standard_artifacts.Model, folder / "model")],
            "model_run": [artifact(standard_artifacts.ModelRun, folder / "run")],
        },
        {
            "train_args": "{}",
            "eval_args": "{}",
            "run_fn": "trainer_module.run_fn",
            "custom_config": json.dumps({"trainer": trainer, "baselines": "eval"}),
        },
    )


@pytest.mark.slow
def test_tfx_executor_trains_as_on_tfrecords(transformed, parquet, tmp_path):
    """Without a shuffle and with one file the order is the same, and so is every number."""
    single = tmp_path / "single"
    files = {}
    for split in ("train", "eval"):
        (file, _) = sorted((parquet / f"Split-{split}").iterdir())
        (single / f"Split-{split}").mkdir(parents=True)
        (single / f"Split-{split}" / file.name).symlink_to(file)
        folder = Path(getattr(transformed, split)).parent
        files[split] = str(folder / Path(file.name).with_suffix(".gz"))
    trainer = {**TRAINER, "epochs": 2, "shuffle_buffer_rows": 0}
    train_by_tfx(single, transformed.graph, tmp_path, trainer)
    result = run_fn(
        types.SimpleNamespace(
            train_files=[files["train"]],
            eval_files=[files["eval"]],
            transform_output=transformed.graph,
            model_run_dir=str(tmp_path / "tfrecord"),
            serving_model_dir=str(tmp_path / "tfrecord" / "serving"),
            custom_config={"trainer": trainer, "baselines": "eval"},
        )
    )
    assert result.epochs == 2
    baselines = [tmp_path / run / "baselines.json" for run in ("run", "tfrecord")]
    assert baselines[0].read_text() == baselines[1].read_text()
    found, expected = (
        tf.train.load_checkpoint(str(tmp_path / folder / "variables" / "variables"))
        for folder in ("model/Format-Serving", "tfrecord/serving")
    )
    assert weights(found) == weights(expected)


def weights(checkpoint) -> list[bytes]:
    """Return the bytes of each exported variable; their order is undefined."""
    tensors = checkpoint.get_variable_to_dtype_map()
    numbers = [name for name, dtype in tensors.items() if dtype != tf.string]
    return sorted(np.asarray(checkpoint.get_tensor(name)).tobytes() for name in numbers)
