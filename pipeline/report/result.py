"""What a run found, read once: the terminal, `summary.json`, the page and MLflow show it."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path

from components.arrow_example_gen.images import SKIPPED
from components.input_gradients.summary import SUMMARY_JSON, AttributionSummary
from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import (
    BETTER_THAN_CONSTANT,
    METRICS,
    ROWS,
    WEIGHTS,
    WHERE_UNDEFINED,
    MetricThreshold,
)
from pipeline.graph.node_names import NodeName
from pipeline.report.metrics import (
    Comparison,
    SliceMetrics,
    constant_refusal,
    metric_number,
    read_slices,
)
from pipeline.report.records import Nodes, find_output, latest_run_of, run_by_id
from pipeline.report.run_record import RunRecord
from pipeline.report.run_warnings import (
    column_cautions,
    few_rows,
    limit_warnings,
    skipped_images,
    too_good,
    worse_than_baselines,
)
from shared_core.run_warning import RunWarning
from trainer_module.baselines import record as baselines_file
from trainer_module.baselines.record import Baseline, Baselines
from trainer_module.checks.warn_once import FILE as WARNINGS


@dataclass(frozen=True)
class RunResult:
    """A run; each property is read from its artifacts when it is first needed, and then kept.

    Attributes:
        config: The configuration that ran.
        nodes: Its finished nodes and their outputs, by name.
    """

    config: PipelineConfig
    nodes: Nodes

    @classmethod
    def load(cls, record: RunRecord) -> RunResult:
        """Return the result of a run from its record and the metadata store."""
        return cls(record.config, run_by_id(record.config, record.summary["run"]["id"]))

    @classmethod
    def latest(cls, config: PipelineConfig) -> RunResult:
        """Return the result of a configuration's latest run."""
        return cls(config, latest_run_of(config))

    def uri(self, node: NodeName, key: str) -> str | None:
        """Return the URI of a node's output; None if the run has none."""
        output = find_output(self.nodes, node, key)
        return output.uri if output else None

    def folder(self, node: NodeName, key: str) -> Path | None:
        """Return the folder of a node's output; None if the run has none or it was deleted."""
        uri = self.uri(node, key)
        return Path(uri) if uri is not None and Path(uri).is_dir() else None

    def _text(self, node: NodeName, key: str, file: str) -> str | None:
        output = find_output(self.nodes, node, key)
        path = Path(output.uri) / file if output else None
        return path.read_text(encoding="utf-8") if path and path.is_file() else None

    @functools.cached_property
    def slices(self) -> tuple[SliceMetrics, ...]:
        """The metrics of each slice, all rows first; empty if no model was evaluated."""
        folder = self.folder(NodeName.EVALUATOR, "evaluation")
        return () if folder is None else read_slices(str(folder))

    @property
    def all_rows(self) -> SliceMetrics:
        """The metrics on all evaluated rows."""
        return self.slices[0] if self.slices else SliceMetrics((), {})

    @property
    def metric_names(self) -> list[str]:
        """The metrics that are shown."""
        return list(self.config.evaluation.metric_names(self.config.label.kind))

    @property
    def judged_by(self) -> str:
        """The selection metric, by which the model is compared with a constant."""
        return self.config.evaluation.judged_by(self.config.label.kind)

    @property
    def counts(self) -> dict[str, str]:
        """Metric -> heading, of the metrics that count rows and add up their weights."""
        return {ROWS: "rows", WEIGHTS: "weights"} if self.config.features.weight else {ROWS: "rows"}

    @property
    def counted(self) -> str:
        """The unit of confusions, bins and thresholds."""
        return "weights" if self.config.features.weight else "rows"

    @functools.cached_property
    def measured_baselines(self) -> Baselines | None:
        """All that the Trainer wrote about baselines; None if it wrote nothing."""
        text = self._text(NodeName.TRAINER, "model_run", baselines_file.FILE)
        return Baselines.from_json(text) if text else None

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The baselines; empty if the Trainer wrote none."""
        return self.measured_baselines.baselines if self.measured_baselines else ()

    @functools.cached_property
    def attributions(self) -> AttributionSummary | None:
        """The attributions to columns; None if the run has none."""
        text = self._text(NodeName.INPUT_GRADIENTS, "attributions", SUMMARY_JSON)
        return AttributionSummary.model_validate_json(text) if text else None

    @functools.cached_property
    def class_names(self) -> list[str]:
        """The names of the label's classes by id, as stored with the model; [] if none."""
        from trainer_module.tfx.label_names import FILE

        text = self._text(NodeName.TRAINER, "model", f"Format-Serving/{FILE}")
        return json.loads(text).get("classes") or [] if text else []

    @functools.cached_property
    def trials(self) -> list[JsonObject]:
        """The trials of the Tuner, best first: `trial_id`, `score`, values by setting."""
        text = self._text(NodeName.TUNER, "tuner_results", "tuner_results.json")
        return json.loads(text) if text and self.config.tuning is not None else []

    @property
    def pushed_model(self) -> Path | None:
        """The folder of the model that the run or its cached Pusher pushed, or None."""
        pushed = find_output(self.nodes, NodeName.PUSHER, "pushed_model")
        if pushed is None or pushed.properties.get("pushed") != 1:
            return None
        return Path(str(pushed.properties["pushed_destination"]))

    @functools.cached_property
    def against_constant(self) -> Comparison | None:
        """The Evaluator's comparison with a constant; None if there is none."""
        is_compared = self.config.evaluation.against_constant
        return self.all_rows.against_constant if is_compared else None

    def needed(self, metric: str) -> str:
        """Return what a metric must reach on all rows, such as `> 0.5, ≥ 0.9`; "" if nothing."""
        constant = self.against_constant if metric == self.judged_by else None
        texts = [constant.bound(metric)] if constant is not None else []
        threshold = self.config.evaluation.thresholds.get(metric, MetricThreshold())
        if threshold.lower_bound is not None:
            texts.append(f"≥ {threshold.lower_bound:g}")
        if threshold.upper_bound is not None:
            texts.append(f"≤ {threshold.upper_bound:g}")
        if threshold.max_loss is not None:
            sign = "-" if METRICS[metric].higher_is_better else "+"
            texts.append(f"{sign}{threshold.max_loss:g} of baseline")
        return ", ".join(filter(None, texts))

    @property
    def compared_with_blessed(self) -> bool:
        """Whether the Evaluator had a blessed model to compare with."""
        blessing = find_output(self.nodes, NodeName.EVALUATOR, "blessing")
        return blessing is not None and "baseline_model_id" in blessing.properties

    @functools.cached_property
    def verdict(self) -> tuple[str, list[str]] | None:
        """`blessed`, `not blessed` or `not judged`, and the reasons; None without an Evaluator."""
        blessing = find_output(self.nodes, NodeName.EVALUATOR, "blessing")
        if blessing is None:
            return None
        if blessing.properties.get("blessed") == 1:
            return "blessed", []
        if self.config.evaluation.is_judged:
            uri = self.uri(NodeName.EVALUATOR, "evaluation")
            reasons = self._failed_thresholds(uri) if uri is not None else []
            return "not blessed", reasons
        reason = (
            "evaluation.thresholds is empty, and TFX's Evaluator blesses no model without one: "
            "give a lower_bound, an upper_bound or a max_loss for a metric, such as "
            f"{self.metric_names[0]}, or set evaluation.require_better_than_constant: true"
        )
        return "not judged", [reason]

    def _failed_thresholds(self, uri: str) -> list[str]:
        import tensorflow_model_analysis as tfma

        result = tfma.load_validation_result(uri)
        reasons: list[str] = []
        for validation in result.metric_validations_per_slice:
            for failure in validation.failures:
                if failure.metric_key.name == BETTER_THAN_CONSTANT:
                    found = self.all_rows.against_constant
                    reasons.append(constant_refusal(found, self.judged_by))
                else:
                    reasons += _threshold_sentences(failure)
        return reasons or [f"TFMA gives no reason; see {uri}"]

    @functools.cached_property
    def warnings(self) -> list[RunWarning]:
        """The warnings of `init` that the YAML keeps, of nodes, and about the metrics."""
        report = self._text(NodeName.NORMALIZATION_VALIDATOR, "report", "report.json")
        training = self._text(NodeName.TRAINER, "model_run", WARNINGS)
        skipped = self._text(NodeName.EXAMPLE_GEN, "examples", SKIPPED)
        return [
            *self.config.warnings,
            *(skipped_images(**json.loads(skipped)) if skipped else ()),
            *column_cautions(self.folder(NodeName.TRANSFORM, "transform_graph")),
            *limit_warnings(json.loads(report)["violations"] if report else ()),
            *(
                RunWarning(what=text.rstrip("."), source=NodeName.TRAINER)
                for text in (json.loads(training) if training else ())
            ),
            *self._metric_warnings(),
        ]

    def _metric_warnings(self) -> list[RunWarning]:
        if self.uri(NodeName.EVALUATOR, "evaluation") is None:
            return []
        values = self.all_rows.values
        shown = {name: values[name] for name in self.metric_names if name in values}
        return [
            *worse_than_baselines(self.judged_by, shown, self.baselines),
            *too_good(shown, self.measured_baselines),
            *few_rows(values, self.config.data.evaluation_split),
        ]


def _threshold_sentences(failure) -> list[str]:
    """Return what a metric violates, from TFMA's record of it."""
    name, threshold = failure.metric_key.name, failure.metric_threshold
    number, is_change = failure.metric_value.double_value.value, failure.metric_key.is_diff
    if not math.isfinite(number):
        known = WHERE_UNDEFINED.get(name)
        text = f"{name} is undefined" + (f" (as when {known})" if known else "")
        of = " of this model or of the baseline: the two were not compared"
        return [text + (of if is_change else ": it meets no bound")]
    value = metric_number(number)
    if is_change:
        allowed = threshold.change_threshold.absolute.value
        return [f"{name} changed by {value} from the baseline; allowed {allowed:g}"]
    bounds = threshold.value_threshold
    return [
        f"{name} is {value}; {text} {getattr(bounds, key).value:g}"
        for key, text in (("lower_bound", "needed at least"), ("upper_bound", "allowed at most"))
        if bounds.HasField(key)
    ]
