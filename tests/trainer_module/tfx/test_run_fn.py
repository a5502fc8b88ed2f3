"""run_fn from a Transform output to a SavedModel, and what it refuses before it trains."""

from __future__ import annotations

import functools
import json
import traceback
from pathlib import Path

import keras
import numpy as np
import pytest
import small_transform
import tensorflow as tf
import user_model
from tfrecords import serialized

from trainer_module import run_fn
from trainer_module.common.progress import EvaluationEnded, TrainingEnded, TrainingStep
from trainer_module.model import plan
from trainer_module.step import setup
from trainer_module.tfx import run as tfx_run
from trainer_module.window.micro_batch import micro_batch_gradients
from transform import preprocessing_fn

QUICK = {"label": "generous", "global_batch_size": 32, "optimizer": {"learning_rate": 0.01}}


def signature(folder, name="serving_default"):
    loaded = tf.saved_model.load(folder)
    return loaded, loaded.signatures[name]


@pytest.mark.slow
def test_training_without_a_layout(fn_args, progress_records):
    """Result, export, logged progress, files of the run, and a second call on its checkpoint."""
    args = fn_args(**QUICK, epochs=8)
    args.custom_config["reading"] = {"csv": {"missing": [""]}}
    result = run_fn(args)
    reading = Path(args.serving_model_dir, "assets.extra", "reading.json")
    assert json.loads(reading.read_text()) == args.custom_config["reading"]
    assert result.stopped == "epochs"
    assert result.steps == 8 * 19  # ceil(600 / 32)
    # The label is a function of the features, but a tenth of the companies is missing.
    assert result.metrics["auc"] > 0.95
    _, serve = signature(args.serving_model_dir)
    assert serve.structured_outputs["outputs"].shape.as_list() == [None, 1]

    assert [type(record) for record in progress_records].count(EvaluationEnded) == 8
    train = [record for record in progress_records if isinstance(record, TrainingStep)][-1]
    assert (train.step, train.total_steps, train.epochs) == (152, 152, 8)
    assert train.examples_per_second > 0
    assert train.eta_seconds == 0
    skipped = {"empty": 0, "non_finite": 0, "loss_scale": 0}
    assert progress_records[-1] == TrainingEnded("epochs", 152, skipped, global_batch=600 / 19)

    run = Path(args.model_run_dir)
    assert list(run.glob("train/events*"))
    tags = {
        value.tag
        for file in run.glob("eval/events*")
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    }
    assert tags == {"loss", "auc", "accuracy"}
    assert list(run.glob("checkpoints/*/ckpt-152.index"))

    assert run_fn(args) == result  # nothing left to do but the export
    assert len(result.history["val_auc"]) == 8


def test_eight_calls_lead_from_run_fn_to_the_gradients_of_a_micro_batch(fn_args, monkeypatch):
    """Calls of this project's functions; those within a function are read with it."""
    chains = []

    def gradients(*arguments, **named):
        codes = [frame.f_code for frame, _ in traceback.walk_stack(None)]
        names = [c.co_qualname for c in codes if "/trainer_module/" in c.co_filename]
        if "run_fn" in names:
            names = names[: names.index("run_fn") + 1]
            chains.append([name for name in names if "<locals>" not in name])
        return micro_batch_gradients(*arguments, **named)

    monkeypatch.setattr(setup, "micro_batch_gradients", gradients)
    run_fn(fn_args(**QUICK, steps=1))
    assert min(map(len, chains)) <= 8, chains


def test_passed_through_features_are_not_model_inputs(fn_args, packed, monkeypatch):
    """A key with missing values is in the files; a model that takes it is rejected with a fix."""
    settings = {"global_batch_size": 50, "steps": 1, "model_fn": "user_model.takes_the_key"}
    with pytest.raises(ValueError, match=r"input 'ride', which is in features\.passthrough"):
        run_fn(fn_args(packed, **settings))


def test_several_outputs_need_one_loss_function_and_no_metrics(fn_args, monkeypatch):
    """One label for two outputs ended in "Expected any non-tensor type" after the first epoch."""
    settings = {**QUICK, "steps": 2, "model_fn": "user_model.two_outputs"}
    for wrong in ({}, {"loss": "user_model.both"}):
        with pytest.raises(ValueError, match=r"2 outputs \(tip, tolls\), and the examples"):
            run_fn(fn_args(**settings, **wrong))
    result = run_fn(fn_args(**settings, loss="user_model.both", metrics=[]))
    assert list(result.metrics) == ["loss"]


@pytest.mark.slow
def test_run_can_be_extended_and_differences_are_reported(fn_args, tmp_path, monkeypatch, warnings):
    """Longer, or saved more often: trained on.

    An edited model_fn: trained from its beginning, which the log says.
    """
    source = Path(user_model.__file__).read_text()
    (tmp_path / "edited_model.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    args = fn_args(**QUICK, epochs=1, model_fn="edited_model.fare_only")
    run_fn(args)
    args.custom_config["trainer"] |= {"epochs": 2, "checkpoint_every_minutes": 0.5}
    grown = run_fn(args)
    assert (grown.steps, len(grown.history["loss"])) == (38, 2)
    assert warnings == []
    (tmp_path / "edited_model.py").write_text(f"{source}\nEDITED = True\n")
    args.custom_config["trainer"]["optimizer"] = {"learning_rate": 0.02}
    again = run_fn(args)
    assert (again.steps, len(again.history["loss"])) == (38, 2)
    assert again.history["loss"][0] != grown.history["loss"][0]
    (line,) = warnings
    assert "Training from the beginning" in line
    assert "trainer.optimizer.learning_rate was 0.01 and is 0.02" in line
    assert "code.edited_model was " in line


def test_settings_next_to_their_key_are_rejected(fn_args):
    for custom, message in [
        ({"epochs": 3, "label": "generous"}, r"has 'epochs', 'label' and no \"trainer\": put the"),
        ({"Trainer": {"epochs": 3}}, r"has 'Trainer' and no \"trainer\""),
    ]:
        args = fn_args()
        args.custom_config = custom
        with pytest.raises(ValueError, match=message):
            run_fn(args)


def test_invalid_settings_are_rejected_with_a_fix(fn_args, monkeypatch):
    for settings, message in [
        (
            {"global_batch_size": 10_000},
            r"trainer.global_batch_size=10000 exceeds the 600 training rows: use 600 or less",
        ),
        (
            {"global_batch_size": {"0": 32, "9": 8}, "micro_batch_size": 16},
            r"trainer.micro_batch_size=16 exceeds global_batch_size={0: 32, 9: 8}: .* 8 or less",
        ),
        (
            {"scale_learning_rate": "linear"},
            r"trainer.scale_learning_rate='linear' has no effect: global_batch_size=32 does not",
        ),
        ({"label": "generus"}, r"trainer.label='generus' is not among .* mean 'generous'"),
        ({"weight": "fares"}, r"trainer.weight='fares' is not among the transformed features"),
        ({"weight": "generous"}, r"trainer.weight='generous' is the label too.*leave it out"),
        (
            {"loss": "mse", "label": "fare_scaled", "class_weight": {"1": 3}},
            r"trainer.class_weight=.*label is a number and has no classes",
        ),
        (
            {"loss": "user_model.blurred_in_full", "class_weight": {"1": 3}},
            r"class_weight=.*'user_model.blurred_in_full' weighs the rows",
        ),
        ({"model_fn": "keras.Modle"}, r"has no 'Modle'; did you mean 'Model'"),
        ({"model_fn": "user_model.not_a_model"}, r"model_fn='user_model.not_a_model' returned"),
        ({"optimizer": {"options": {"beta": 1}}}, r"trainer.optimizer.options=.*it takes"),
        ({"strategy": "multi_worker"}, r"strategy='multi_worker' needs TF_CONFIG"),
        ({"logical_devices": 64}, r"logical_devices=64, but TensorFlow already runs"),
        ({"intra_op_threads": 3}, r"intra_op_threads=3, but TensorFlow already runs in"),
        ({"recompute": ["outputt"]}, r"trainer.recompute='outputt' is not a layer.*mean 'outputs'"),
        (
            {"metrics": ["auc"], "early_stopping": {"monitor": "acc"}},
            r"trainer.early_stopping.monitor='acc' is not evaluated; did you mean 'auc'",
        ),
    ]:
        args = fn_args(**{**QUICK, "steps": 1, **settings})
        if "global_batch_size" in settings:
            args.custom_config["trainer"].pop("steps")
        with pytest.raises(ValueError, match=message):
            run_fn(args)
        assert not Path(args.serving_model_dir).exists()


@pytest.mark.parametrize(
    ("label", "fare", "message"),
    [
        ("generous", float, r"label='generous' is 1 in all 64 training rows"),
        (
            "fare_scaled",
            lambda i: np.nan if i == 7 else float(i),
            r"label='fare_scaled' is NaN or infinite in row 7",
        ),
    ],
)
def test_a_label_that_is_constant_or_not_finite_is_refused(fn_args, tmp_path, label, fare, message):
    args = fn_args(**{**QUICK, "label": label})
    args.train_files = [str(tmp_path / "part")]
    with tf.io.TFRecordWriter(args.train_files[0]) as writer:
        for i in range(64):
            row = {"company_id": [i % 4], "hour_id": [i % 24], "generous": [1]}
            writer.write(small_transform.serialized({**row, "fare_scaled": [fare(i)]}))
    with pytest.raises(ValueError, match=message):
        run_fn(args)


def test_files_that_do_not_exist_are_named(fn_args, tmp_path):
    args = fn_args(**QUICK)
    args.train_files = [str(tmp_path / "nothing-*")]
    with pytest.raises(ValueError, match=r"the train split .* no file matches .*nothing-\*"):
        run_fn(args)


def test_the_process_is_prepared_before_a_metric_starts_tensorflow(fn_args, monkeypatch):
    """A metric has variables: with them TensorFlow starts, and its devices can no longer be cut."""
    seen = []
    monkeypatch.setattr(tfx_run, "prepare_process", lambda config: seen.append("prepared"))
    monkeypatch.setattr(plan, "create_metric", lambda name, kind: seen.append(name))
    monkeypatch.setattr(tfx_run, "open_data", lambda fn_args, config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_fn(fn_args(**QUICK, metrics=["auc"]))
    assert seen == ["prepared", "auc"]


@pytest.mark.slow
def test_all_options_at_once(fn_args, packed):
    args = fn_args(
        packed,
        strategy="mirrored",
        logical_devices=2,
        precision="mixed_float16",
        jit_compile=True,
        global_batch_size=64,
        micro_batch_size=8,
        steps=40,
        ema_momentum=0.8,
        clip_norm=1.0,
        model={"hidden_units": [16], "dropout": 0.1, "embedding_size": 4},
        optimizer={
            "name": "adam",
            "learning_rate": 0.05,
            "schedule": {"name": "cosine", "warmup_steps": 5},
        },
        checkpoint_every_steps=15,
        steps_per_loop=4,
        seed=3,
    )
    args.train_steps = 3  # TFX's, which `steps` replaces
    result = run_fn(args)
    assert (result.stopped, result.steps, result.epochs) == ("steps", 40, 4)
    assert result.metrics["auc"] > 0.8
    assert keras.config.dtype_policy().name == "float32"  # as it was before


@pytest.mark.slow
def test_hyperparameters_replace_settings_of_a_multiclass_label(fn_args):
    args = fn_args(**{**QUICK, "label": "hour_id"}, epochs=1)
    args.train_steps = 3  # TFX's, which `epochs` replaces
    args.hyperparameters = {
        "space": [],
        "values": {"global_batch_size": 100, "model.hidden_units": "[4]"},
    }
    result = run_fn(args)
    assert result.steps == 6  # ceil(600 / 100)
    run = Path(args.model_run_dir)
    shapes = dict(tf.train.list_variables(tf.train.latest_checkpoint(next(run.glob("*/*")))))
    assert [4, 24] in shapes.values()
    assert set(result.metrics) == {"loss", "accuracy"}
    assert result.metrics["loss"] == pytest.approx(np.log(24), rel=0.2)  # hours are uniform noise


@pytest.mark.slow
def test_token_ids_are_trained_and_served(fn_args, tmp_path):
    """A transformer on bytes of names; serving answers 200 rows as the evaluation saw them."""
    groups = [
        {"name": "names", "columns": "company", "encode": {"tokens": {"split": "bytes"}}},
        {"name": "numbers", "columns": "fare", "scale": "z_score"},
    ]
    features = {"groups": groups, "label": {"column": "tips", "kind": "regression"}}
    data = small_transform.run_transform(
        tmp_path, functools.partial(preprocessing_fn, custom_config={"features": features})
    )
    args = fn_args(
        data,
        global_batch_size=100,
        micro_batch_size=16,
        epochs=1,
        model={"kind": "transformer", "width": 4, "heads": 2, "blocks": 1, "hidden_units": [4]},
        optimizer={"learning_rate": 0.01},
    )
    args.custom_config["baselines"] = "eval"
    result = run_fn(args)
    loaded, serve = signature(args.serving_model_dir)
    rows = [serialized({n: v for n, v in row.items() if n != "tips"}) for row in data.raw["eval"]]
    together = serve(tf.constant(rows))["outputs"].numpy()
    assert (len(rows), sum(not row["company"] for row in data.raw["eval"]) > 0) == (200, True)
    # Each request is padded to its own longest text.
    alone = np.concatenate([serve(tf.constant([row]))["outputs"].numpy() for row in rows[:10]])
    np.testing.assert_allclose(alone, together[:10], rtol=1e-5, atol=1e-6)
    truth = np.array([row["tips"] for row in data.raw["eval"]], "float32")
    error = np.abs(together - truth).mean()
    assert result.metrics["mean_absolute_error"] == pytest.approx(error, rel=1e-5)
    columns = loaded.signatures["raw"](
        company=tf.constant([["Sun Taxi"], [""]]), fare=tf.constant([[3.0], [3.0]])
    )
    assert np.ptp(columns["outputs"]) > 0
    baselines = json.loads(Path(args.model_run_dir, "baselines.json").read_text())
    assert {each["name"] for each in baselines["baselines"]} == {"constant", "linear"}
    args.custom_config["input_gradients"] = True
    with pytest.raises(ValueError, match=r"takes pictures or tokens \(company\)"):
        run_fn(args)
    args.custom_config["trainer"]["model"] = {}
    with pytest.raises(ValueError, match=r"use kind: transformer"):
        run_fn(args)
