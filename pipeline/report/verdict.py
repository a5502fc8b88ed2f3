"""Whether the model is blessed and pushed, and the thresholds that it violates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import BETTER_THAN_CONSTANT, WHERE_UNDEFINED
from pipeline.graph.node_names import NodeName
from pipeline.report import against_constant
from pipeline.report.console import print_text
from pipeline.report.progress import RunState
from pipeline.report.records import NodeRecord, OutputArtifact, find_output, latest_run_of
from pipeline.report.short_path import short
from pipeline.report.slices import metric_number, named_slices
from shared_core.run_warning import count_warnings

SHOWN_ROWS = 5


def show_verdict(
    config: PipelineConfig, records: dict[str, NodeRecord], console: Console, *, warnings: int = 0
) -> None:
    """Print whether the model is blessed, with how many warnings, and the violated thresholds."""
    blessing = find_output(records, NodeName.EVALUATOR, "blessing")
    if blessing is None:
        return
    if blessing.properties.get("blessed") == 1:
        against = f"every threshold holds{_compared(config, blessing)}."
        result = Text("blessed", "bold green")
        if warnings:
            result = Text(f"blessed with {count_warnings(warnings)}", "bold yellow")
        print_text(console, Text.assemble(result, f": {against}"))
    else:
        result, reasons = verdict(config, records, blessing)
        print_text(console, Text.assemble((result, "bold red"), ", so not pushed:"))
        for reason in reasons:
            print_text(console, f"  {reason}")
    pushed = pushed_model(records)
    if pushed is not None:
        text = Text.assemble(("pushed", "bold green"), f" to {short(pushed)}")
        console.print(text, highlight=False, soft_wrap=True)


def verdict(
    config: PipelineConfig, records: Mapping[str, NodeRecord], blessing: OutputArtifact
) -> tuple[str, list[str]]:
    """Return `blessed`, `not blessed` or `not judged`, and the reasons for the latter two."""
    if blessing.properties.get("blessed") == 1:
        return "blessed", []
    result = "not blessed" if config.evaluation.is_judged else "not judged"
    reasons = _reasons(config, find_output(records, NodeName.EVALUATOR, "evaluation"))
    return result, [*reasons, *unusable_labels(config, records)]


def fails_a_threshold(config: PipelineConfig, state: RunState) -> bool:
    """Return whether the Evaluator of the run that just ended refused to bless the model.

    Without thresholds the Evaluator judges nothing. A run in which no node ran (TFX's command line
    reads a pipeline this way) does not describe the latest model.
    """
    node = state.node(NodeName.EVALUATOR)
    if node is None or node.status not in ("done", "cached") or not config.evaluation.is_judged:
        return False
    blessing = find_output(latest_run_of(config), NodeName.EVALUATOR, "blessing")
    return blessing is not None and blessing.properties.get("blessed") != 1


def _compared(config: PipelineConfig, blessing: OutputArtifact) -> str:
    """Return the end of a sentence that names what the model was compared with."""
    changes = [name for name, t in config.evaluation.thresholds.items() if t.max_loss is not None]
    if "baseline_model_id" not in blessing.properties:
        return "; there was no blessed model yet to compare with"
    if not changes:
        return "; not compared with the latest blessed model: no threshold sets max_loss"
    return f", {', '.join(changes)} also against the latest blessed model"


def _reasons(config: PipelineConfig, evaluation: OutputArtifact | None) -> list[str]:
    if not config.evaluation.is_judged:
        names = config.evaluation.metric_names(config.label.kind)
        return [
            "evaluation.thresholds is empty, and TFX's Evaluator blesses no model without one: "
            f"give a lower_bound, an upper_bound or a max_loss for a metric, such as {names[0]}, "
            "or set evaluation.require_better_than_constant: true",
        ]
    return failed_thresholds(evaluation, judged_by=config.evaluation.judged_by(config.label.kind))


def failed_thresholds(evaluation: OutputArtifact | None, *, judged_by: str) -> list[str]:
    """Return one sentence for each violated threshold in TFMA's validation result."""
    import tensorflow_model_analysis as tfma

    if evaluation is None:
        return []
    result = tfma.load_validation_result(evaluation.uri)
    reasons = []
    for validation in result.metric_validations_per_slice:
        for failure in validation.failures:
            name = failure.metric_key.name
            if name == BETTER_THAN_CONSTANT:
                found = against_constant.comparison_of(named_slices(evaluation.uri)[0][1])
                reasons.append(against_constant.explain_refusal(found, judged_by))
                continue
            threshold = failure.metric_threshold
            value = metric_number(failure.metric_value.double_value.value)
            if failure.metric_key.is_diff:
                allowed = threshold.change_threshold.absolute.value
                if not math.isfinite(failure.metric_value.double_value.value):
                    reasons.append(
                        f"{name} {_where_undefined(name)} of this model or of the baseline: the "
                        "two were not compared"
                    )
                    continue
                reasons.append(f"{name} changed by {value} from the baseline; allowed {allowed:g}")
                continue
            bounds = threshold.value_threshold
            if not math.isfinite(failure.metric_value.double_value.value):
                reasons.append(f"{name} {_where_undefined(name)}: it meets no bound")
                continue
            if bounds.HasField("lower_bound"):
                reasons.append(f"{name} is {value}; needed at least {bounds.lower_bound.value:g}")
            if bounds.HasField("upper_bound"):
                reasons.append(f"{name} is {value}; allowed at most {bounds.upper_bound.value:g}")
    return reasons or [f"TFMA gives no reason; see {evaluation.uri}"]


def _where_undefined(metric: str) -> str:
    known = WHERE_UNDEFINED.get(metric)
    return "is undefined" + (f" (as when {known})" if known else "")


def unusable_labels(config: PipelineConfig, records: Mapping[str, NodeRecord]) -> list[str]:
    """Return a sentence about evaluated rows without a valid label; empty if there are none.

    Transform writes NaN for a missing or invalid label, or class -1.
    """
    import numpy as np
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    written = find_output(records, NodeName.TRANSFORM, "transformed_examples")
    if written is None:
        return []
    split = config.data.evaluation_split
    label, rows, bad = config.label.column, 0, []
    for file in sorted(Path(written.uri).glob(f"Split-{split}/*.parquet")):
        values = pc.list_flatten(pq.read_table(file, columns=[label])[label]).to_numpy()
        unusable = ~np.isfinite(values) if values.dtype.kind == "f" else values == -1
        bad += (rows + 1 + np.flatnonzero(unusable)).tolist()
        rows += len(values)
    if not bad:
        return []
    shown = ", ".join(map(str, bad[:SHOWN_ROWS])) + (", ..." if len(bad) > SHOWN_ROWS else "")
    return [
        f"label {label!r} is missing, invalid or of an unknown class in {len(bad):,} of {rows:,} "
        f"{split} rows (rows {shown} of {short(Path(written.uri))}/Split-{split}): leave them out "
        "of the data, or correct them"
    ]


def pushed_model(records: Mapping[str, NodeRecord]) -> Path | None:
    """Return the folder of the model that the run or its cached Pusher pushed, or None."""
    pushed = find_output(records, NodeName.PUSHER, "pushed_model")
    if pushed is None or pushed.properties.get("pushed") != 1:
        return None
    return Path(str(pushed.properties["pushed_destination"]))
