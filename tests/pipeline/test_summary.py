"""What the summary says of a model that is not blessed, and what TFX makes of the thresholds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipeline import summary
from pipeline.config_file import load_config
from pipeline.evaluation import EvaluationConfig
from pipeline.records import NodeRecord, OutputArtifact


def test_without_a_threshold_the_reason_is_that(write: Any, tmp_path: Path) -> None:
    """As TFX's Evaluator leaves its outputs then: nothing validated, no `blessed` property."""
    outputs = {key: [OutputArtifact(str(tmp_path / key), {})] for key in ("blessing", "evaluation")}
    out = io.StringIO()
    records = {"Evaluator": NodeRecord("Evaluator", outputs)}
    summary._verdict(load_config(write()), records, Console(file=out, width=200))
    assert out.getvalue().splitlines() == [
        "not blessed, so not pushed:",
        "  evaluation.thresholds is empty, and TFX's Evaluator blesses no model without one: "
        "give a lower_bound, an upper_bound or a max_loss for a metric, such as auc",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threshold", "first", "later"),
    [
        ({"max_loss": 0.1}, (True, True), (True, False)),
        ({"lower_bound": 0.7}, (True, False), (True, False)),
        ({"lower_bound": 0.2, "max_loss": 0.1}, (True, True), (True, False)),
    ],
)
def test_max_loss_holds_while_there_is_no_baseline(
    threshold: dict[str, float], first: tuple[bool, bool], later: tuple[bool, bool]
) -> None:
    """Reference: by hand, for an AUC of 0.8 and then 0.6, alone and against a baseline of 0.8.

    TFMA's own check, of the configuration as TFX's Evaluator completes it.
    """
    import tensorflow_model_analysis as tfma
    from tensorflow_model_analysis.evaluators import metrics_validator
    from tensorflow_model_analysis.metrics import metric_types

    config = EvaluationConfig.model_validate({"metrics": ["auc"], "thresholds": {"auc": threshold}})
    ours = config.eval_config(label="bought", kind="binary", weight=None)

    def verdicts(has_baseline: bool) -> tuple[bool, ...]:
        completed = tfma.utils.update_eval_config_with_defaults(
            ours, has_baseline=has_baseline, rubber_stamp=True
        )
        # Where there is none, TFX's Evaluator blesses nothing.
        assert tfma.metrics.metric_thresholds_from_metrics_specs(
            completed.metrics_specs, eval_config=completed
        )
        candidate = completed.model_specs[0].name
        key = metric_types.MetricKey("auc", model_name=candidate)
        found = []
        for auc in (0.8, 0.6):
            metrics = {key: auc}
            if has_baseline:
                metrics |= {
                    key.make_baseline_key("baseline"): 0.8,
                    key.make_diff_key(): auc - 0.8,
                }
            result = metrics_validator.validate_metrics(((), metrics), completed)
            found.append(result.validation_ok)
        return tuple(found)

    assert verdicts(has_baseline=False) == first
    assert verdicts(has_baseline=True) == later
