"""A regression is trained on a scaled label, and judged and served in the label's own unit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import small_transform
import tensorflow as tf

from shared_core.feature_layout import MISSING_INT
from trainer_module import TrainerConfig, run_fn
from trainer_module.data.label_scale import LabelMoments, LabelScale, _Moments, find_label_scale
from trainer_module.model.metrics import InOwnUnit, create_metric

RANDOM = np.random.default_rng(0)
SKEWED = np.exp(RANDOM.normal(12, 1, [4000, 1]))  # prices: 160,000 in the middle, a few in millions
EVEN = RANDOM.normal(1e6, 1e3, [4000, 1])
COUNTS = RANDOM.poisson(np.exp(RANDOM.normal(0, 1, [4000, 1]))).astype(np.float64)


def scale(values, wanted="auto", **given):
    moments = LabelMoments.of(values)
    settings = {"loss": None, "own_model": False, "label": "price", **given}
    whole = bool((values == np.floor(values)).all())
    return find_label_scale(wanted, moments, whole=whole, **settings)


def test_moments_of_batches_are_those_of_all_rows():
    """Against NumPy's float64 over all rows, for batches of 1, 2 and 1000 rows and the rest."""
    for values in [SKEWED, EVEN, COUNTS, np.full([10, 2], 3.0)]:
        cuts = [1, 3, 1003]
        merged = None
        for part in np.split(values, [cut for cut in cuts if cut < len(values)]):
            one = _Moments.of(part)
            merged = merged.merged(one) if merged else one
        assert merged.rows == len(values)
        np.testing.assert_allclose(merged.mean, values.mean(0), rtol=1e-14)
        np.testing.assert_allclose(merged.deviation, values.std(0), rtol=1e-11)
        spread = np.where(values.std(0) > 0, values.std(0), 1)
        expected = (((values - values.mean(0)) / spread) ** 3).mean(0)
        np.testing.assert_allclose(merged.skewness, expected, rtol=1e-9, atol=1e-12)


def test_auto_takes_the_logarithm_of_what_is_skewed_and_has_one():
    assert scale(EVEN).name == "z_score"
    assert scale(SKEWED).name == "log"
    assert (scale(COUNTS).name, scale(COUNTS).shift) == ("log", 1.0)
    # A few negative numbers, and fractions down to 0: no logarithm.
    assert scale(SKEWED - SKEWED.min() - 1).name == "z_score"
    assert scale(SKEWED, own_model=True) is None
    assert scale(SKEWED, loss="poisson") is None
    assert scale(SKEWED, wanted="none") is None
    assert scale(SKEWED, loss="mean_absolute_error").name == "log"


def test_labels_are_near_0_and_1_wide_and_come_back():
    for wanted in ["z_score", "log"]:
        for values in [SKEWED, EVEN, COUNTS, RANDOM.normal(5, [1, 7], [4000, 2])]:
            if wanted == "log" and (values < 0).any():
                with pytest.raises(ValueError, match="'price' goes down to 0 or below"):
                    scale(values, wanted)
                continue
            found = scale(values, wanted)
            z = found.scaled(tf.constant(values, tf.float32)).numpy()
            np.testing.assert_allclose(z.mean(0, np.float64), 0, atol=1e-3)
            np.testing.assert_allclose(z.std(0, dtype=np.float64), 1, rtol=1e-3)
            back = found.unscaled(tf.constant(z)).numpy()
            # float32 of z: its last bit is 2^-24 of a deviation, or of the logarithm.
            np.testing.assert_allclose(back, values, rtol=2e-6, atol=2e-6 * values.std(0).max())


def test_whole_labels_far_from_0_keep_every_digit():
    """Against NumPy's float64; z is float32, whose last bit is 2^-24 of a deviation."""
    for origin in [1_700_000_000, 10**12, -(10**15)]:
        labels = origin + RANDOM.integers(0, 50, [500, 1])
        found = scale(labels)
        deviation = labels.std()
        z = found.scaled(tf.constant(labels, tf.int64))
        np.testing.assert_allclose(z, (labels - labels.mean()) / deviation, rtol=1e-6, atol=1e-6)
        back = found.unscaled(z)
        assert back.dtype == tf.float64
        np.testing.assert_allclose(back, labels, rtol=2**-52, atol=1e-6 * deviation)
        metric = InOwnUnit(create_metric("mean_absolute_error", "regression"), found)
        metric.update_state(z, z + 0.5)
        bit = np.spacing(abs(float(origin)))
        assert float(metric.result()) == pytest.approx(0.5 * deviation, rel=1e-5, abs=bit)
        missing = tf.constant([[MISSING_INT], [origin]], tf.int64)
        assert np.isnan(found.scaled(missing)).tolist() == [[True], [False]]


def test_values_outside_the_training_range_stay_finite():
    log = LabelScale("log", 0.0, (12.0,), (1.0,))
    assert np.isfinite(log.scaled(tf.constant([[0.0], [-5.0]])).numpy()).all()
    served = log.unscaled(tf.constant([[-1e9], [1e9]])).numpy()
    assert served[0, 0] == 0
    assert served[1, 0] > 3.4e38
    assert np.isfinite(served).all()


def test_losses_and_names_that_do_not_fit_are_rejected():
    with pytest.raises(ValueError, match="loss='poisson' is another loss on scaled labels"):
        scale(SKEWED, "z_score", loss="poisson")
    with pytest.raises(ValueError, match="label_scale='robust'"):
        TrainerConfig.parse({"label_scale": "robust"})


SINCE_1970 = 1_700_000_000


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """A Transform output whose label is whole seconds since 1970, a line in the scaled fare."""

    def preprocessing_fn(inputs):
        packed = small_transform.packed_preprocessing_fn(inputs)
        del packed["generous"]
        due = tf.cast(tf.round(600.0 * packed["packed_float"]), tf.int64) + SINCE_1970
        return {**packed, "due": due}

    data = small_transform.run_transform(tmp_path_factory.mktemp("dated"), preprocessing_fn)
    layout = {**small_transform.PACKED_LAYOUT, "label": {"name": "due", "kind": "regression"}}
    Path(data.graph, "transform_fn", "assets", "feature_layout").write_text(json.dumps(layout))
    return data


@pytest.mark.slow
def test_seconds_since_1970_keep_every_digit_from_the_file_to_the_served_answer(fn_args, dated):
    """Reference: NumPy, float64, on the labels as they stand in the data. float32 is 128 coarse."""
    args = fn_args(dated, global_batch_size=50, epochs=2, model={"hidden_units": [4]})
    args.custom_config["baselines"] = "eval"
    result = run_fn(args)
    served = tf.saved_model.load(args.serving_model_dir)
    examples = tf.constant([small_transform.serialized(row) for row in dated.raw["eval"]])
    spec = {"due": tf.io.FixedLenFeature([1], tf.int64)}
    written = {}
    for split in ("train", "eval"):
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(getattr(dated, split)), "GZIP")
        rows = next(iter(records.batch(10_000).map(lambda r: tf.io.parse_example(r, spec))))
        written[split] = rows["due"].numpy()[:, 0]
    labels = served.signatures["transform_features"](examples=examples)["due"].numpy()[:, 0]
    assert labels.dtype == np.float64
    assert sorted(labels.tolist()) == sorted(written["eval"].tolist())
    assert len(set(labels.tolist())) > 100  # float32 has 30 numbers there
    outputs = served.signatures["serving_default"](examples=examples)["outputs"].numpy()[:, 0]
    assert outputs.dtype == np.float64
    mean_error = np.abs(outputs - labels).mean()
    assert result.metrics["mean_absolute_error"] == pytest.approx(mean_error, rel=1e-4)
    record = json.loads(Path(args.model_run_dir, "baselines.json").read_text())
    constant = np.abs(written["eval"] - np.median(written["train"])).mean()
    found = {each["name"]: each["metrics"] for each in record["baselines"]}
    assert found["constant"]["mean_absolute_error"] == pytest.approx(constant, rel=1e-9)
    assert found["linear"]["mean_absolute_error"] < 1.0


def test_a_label_of_classes_has_no_scale(fn_args):
    with pytest.raises(ValueError, match="'generous' is binary, which has no scale"):
        run_fn(fn_args(label="generous", global_batch_size=32, label_scale="log"))
