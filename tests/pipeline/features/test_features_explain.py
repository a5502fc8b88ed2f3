"""What the page shows of a chain, and what it makes of the rows that were counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.features import features_explain
from pipeline.features.features_explain import step_text
from pipeline.report.records import OutputArtifact

CHAINS = pytest.importorskip("transform.chains")


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (("scale", "z_score", {"mean": 11.87, "standard_deviation": 1 / 3}),
         "scale z_score: mean 11.87, std 0.333333"),
        (("clip", "quantiles", {"quantiles": [0.01, 0.99], "min": 0.5, "max": None}),
         "clip quantiles: quantiles [0.01, 0.99], min 0.5"),
        (("encode", "one_hot", {"values": list("abcdef")}),
         "encode one_hot: values [a, b, c, ... 3 more]"),
        (("scale", "z_score", {"note": "constant (2.5): 0 everywhere"}),
         "scale z_score: constant (2.5): 0 everywhere"),
    ],
)  # fmt: skip
def test_a_step_is_one_line(step: Any, text: str) -> None:
    assert step_text(CHAINS.ChainStep(*step)) == text


def test_missing_is_the_share_of_the_rows_that_were_analyzed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reference: counted by hand; None where a number lacks."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    split = tmp_path / "Split-train"
    split.mkdir()
    statistics = statistics_pb2.DatasetFeatureStatisticsList()
    statistics.datasets.add(num_examples=8)
    (split / "FeatureStats.pb").write_bytes(statistics.SerializeToString())
    chains = [CHAINS.Chain("x", "g", (), ("x",), count) for count in (6, 0, None)]
    monkeypatch.setattr("transform.column_chains", lambda uri: chains)
    artifact = OutputArtifact(str(tmp_path), {})
    records = {"Transform": {"transform_graph": artifact}}
    assert [one.missing for one in features_explain.explain_columns(records)] == [None] * 3
    records["StatisticsGen"] = {"statistics": artifact}
    assert [one.missing for one in features_explain.explain_columns(records)] == [0.25, 1.0, None]


def test_a_pipeline_that_has_not_run_is_an_error(write: Any, capsys: Any) -> None:
    assert main(["profile", "--config", str(write())]) == 2
    assert "pipeline small has not run yet" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="has no finished Transform"):
        features_explain.explain_columns({"StatisticsGen": {}})


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("gone", r"is gone from .*gone; run it again with --set"),
        (".", "has no feature layout with its specification"),  # of another preprocessing_fn
    ],
)
def test_a_graph_that_cannot_be_read_is_an_error(tmp_path: Path, folder: str, message: str) -> None:
    graph = OutputArtifact(str(tmp_path / folder), {})
    records = {"Transform": {"transform_graph": graph}}
    with pytest.raises(ConfigError, match=message):
        features_explain.explain_columns(records)
