"""What is exported, without a server: names, lengths, and what must not leave this machine."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.config_file import load_config
from pipeline.tracking.content import has_secrets, metrics_of, params_of


def summary(slices):
    return {
        "judged_split": "test",
        "slices": slices,
        "baselines": [{"name": "constant", "metrics": {"auc": 0.5}}],
        "rows": {"train": 40},
        "nodes": [{"name": "Trainer", "seconds": 1.5}],
    }


def test_params_are_the_fields_that_are_set(write):
    config = load_config(write(), ["features.groups.0.clip={min: 0}"])
    params = params_of(config)
    assert params["features.groups.numbers.clip.min"] == "0.0"
    assert params["features.groups.numbers.columns"] == '["amount", "age"]'
    assert params["training.global_batch_size"] == "16"
    assert "training.clip_norm" not in params  # not set
    assert not [name for name in params if name.startswith(("cluster", "tracking"))]


def test_a_long_value_is_cut_to_the_limit(write):
    columns = json.dumps([f"column_{i}" for i in range(1000)])
    text = params_of(load_config(write(), [f"features.groups.0.columns={columns}"]))
    assert len(text["features.groups.numbers.columns"]) == 6000
    assert text["features.groups.numbers.columns"].startswith(columns[:5999])


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("beam.options=[--s3_secret_access_key=hush]", "beam.options"),
        ("beam.options=['--endpoint=https://me:hush@host']", "beam.options"),
        ("cluster.kubeflow={image: 'a/b:1', pipeline_root: 's3://b/r', environment: {TOKEN: hush}}",
         "cluster.kubeflow.environment.TOKEN"),
    ],
)  # fmt: skip
def test_credentials_stay_here(write, override, key):
    config = load_config(write(), [override])
    assert has_secrets(config) == [key]
    assert "hush" not in str(params_of(config))


def test_a_yaml_without_credentials(write):
    assert has_secrets(load_config(write())) == []


def test_metrics_of_slices_baselines_and_nodes():
    found = metrics_of(
        summary(
            [
                {"slice": {}, "metrics": {"auc": 0.75, "precision": None}},
                {"slice": {"city": "a/b, c", "paid": True}, "metrics": {"auc": 0.25}},
                {"slice": {"city": "a_b; c", "paid": True}, "metrics": {"auc": 0.5}},
            ]
        )
    )
    assert found == {
        "test/auc": 0.75,
        "test/auc/city:a_b_ c/paid:True": 0.25,
        "test/auc/city:a_b_ c/paid:True_2": 0.5,
        "baseline/constant/auc": 0.5,
        "rows/train": 40,
        "seconds/Trainer": 1.5,
    }


@given(st.lists(st.text(), max_size=5))
def test_any_slice_has_a_legal_name(values):
    """By the rules of the MLflow that is installed."""
    from mlflow.utils import validation

    metrics = metrics_of(summary([{"slice": {"a": v}, "metrics": {"auc": 0.5}} for v in values]))
    assert len(metrics) == len(values) + 3
    for name in metrics:
        validation._validate_metric(name, 0.5, 0, 0)
