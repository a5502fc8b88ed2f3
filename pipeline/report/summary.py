"""The end of a run: nodes, trials, metrics against thresholds, verdict, where the model is."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import (
    BETTER_THAN_CONSTANT,
    FEW_JUDGED,
    MEAN_LABEL,
    METRICS,
    ROWS,
    WEIGHTS,
    WHERE_UNDEFINED,
    MetricThreshold,
)
from pipeline.graph.node_names import NodeName
from pipeline.graph.table import NODES
from pipeline.report import against_constant, baselines, calibration, classes, trials
from pipeline.report.console import caution
from pipeline.report.progress import RunState, duration
from pipeline.report.records import NodeRecord, OutputArtifact, find_output, latest_run_of
from pipeline.report.stacked_tables import print_table
from pipeline.report.too_good import too_good
from trainer_module.baselines.record import Baseline

SHOWN_ROWS = 5
LARGEST_CLASS = "largest_class"  # share of the rows


def show(config: PipelineConfig, state: RunState, console: Console) -> None:
    """Prints the summary of the run that just ended."""
    records = latest_run_of(config)
    console.print()
    console.print(_nodes(config, state, records))
    console.print()
    results = find_output(records, NodeName.TUNER, "tuner_results")
    if config.tuning is not None and results is not None:
        print_table(console, trials.table(config.tuning, results.uri))
        console.print()
    show_metrics(config, records, console)
    for sentence in cautions(records):
        console.print(caution(NodeName.TRANSFORM, sentence), soft_wrap=True)
    show_verdict(config, records, console)


def _nodes(config: PipelineConfig, state: RunState, records: dict[str, NodeRecord]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("node", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    below = Text(f"outputs, below {short(Path(config.pipeline_root))}")
    table.add_column(below, overflow="fold")
    for node in state.nodes:
        record = records.get(node.name)
        outputs = record.outputs if record else {}
        main = _main_outputs(node.name, outputs)
        result = "run" if node.status == "done" else node.status
        uris = [_below(outputs[key][-1].uri, config.pipeline_root) for key in main if outputs[key]]
        table.add_row(
            node.name,
            Text(result, style="cyan" if result == "cached" else ""),
            duration(node.seconds),
            Text("\n".join(uris)),
        )
    total = sum(node.seconds for node in state.nodes)
    table.add_row("all nodes", "", duration(total))
    return table


def _main_outputs(node: str, outputs: Mapping[str, list[OutputArtifact]]) -> list[str]:
    """Return the outputs that the summary shows: those of the node's row, all of a user's node."""
    if node not in NODES:
        return list(outputs)
    return [key for key in outputs if key in NODES[node].main_outputs] or list(outputs)[:1]


def show_metrics(config: PipelineConfig, records: dict[str, NodeRecord], console: Console) -> None:
    """Prints the Evaluator's metrics, baselines beside them, and where the model is behind."""
    evaluator = records.get(NodeName.EVALUATOR)
    if evaluator:
        print_table(console, metrics_table(config, evaluator, baselines.read(records)))
        console.print()
        _classes(config, records, console)
        _calibration(config, records, console)
        _warn_by_baselines(config, records, console)
        _few_rows(evaluator, console)


def metrics_table(
    config: PipelineConfig,
    evaluator: NodeRecord,
    beside: Sequence[Baseline] = (),
) -> Table:
    """The Evaluator's metrics, a row for each slice, and baselines on all rows beside them."""
    names = config.evaluation.metric_names(config.label.kind)
    weighted = [WEIGHTS] if config.features.weight else []
    evaluation = evaluator.output("evaluation")
    table = Table(box=None, header_style="bold", pad_edge=False)
    counts = ["rows", *(["weights"] if weighted else [])]
    # Of several classes, TFMA's mean label is that of 0 and 1 for each class: 1 / classes.
    of_label = LARGEST_CLASS if config.label.kind == "multiclass" else MEAN_LABEL
    for heading in ("slice", *counts, of_label.replace("_", " "), *names):
        table.add_column(heading, justify="left" if heading == "slice" else "right", no_wrap=True)
    if evaluation is None:
        return table
    for name, values in slice_values(evaluation.uri):
        table.add_row(
            Text(name or "all rows"),
            *(_count(values.get(metric)) for metric in (ROWS, *weighted)),
            *(_number(values.get(metric)) for metric in (of_label, *names)),
        )
    for each in beside:
        table.add_row(
            Text(baselines.shown_name(each), style="dim"),
            *("" for _ in (*counts, of_label)),
            *(Text(_of_baseline(each, metric), style="dim") for metric in names),
        )
    if config.evaluation.is_judged:
        table.add_row(
            Text("needed on all rows", style="dim"),
            *("" for _ in (*counts, of_label)),
            *(Text(_bounds(config, metric, evaluation.uri), style="dim") for metric in names),
        )
    return table


def _classes(config: PipelineConfig, records: dict[str, NodeRecord], console: Console) -> None:
    evaluation = find_output(records, NodeName.EVALUATOR, "evaluation")
    if evaluation is None or config.label.kind != "multiclass":
        return
    _, metrics = _slices(evaluation.uri)[0]
    matrix = classes.matrix_of(metrics)
    if matrix:
        names = classes.class_names(records.get(NodeName.TRAINER))
        counted = "weights" if config.features.weight else "rows"
        print_table(console, classes.table_of(matrix, names, counted=counted))
        console.print()


def _calibration(config: PipelineConfig, records: dict[str, NodeRecord], console: Console) -> None:
    evaluation = find_output(records, NodeName.EVALUATOR, "evaluation")
    if evaluation is None or config.label.kind == "regression":
        return
    bins = calibration.bins_of(_slices(evaluation.uri)[0][1])
    if bins:
        counted = "weights" if config.features.weight else "rows"
        print_table(console, calibration.table_of(bins, counted=counted))
        console.print(calibration.sentence(bins), highlight=False, soft_wrap=True)
        console.print()


def slices_of(uri: str) -> list[tuple[tuple[tuple[str, Any], ...], dict[str, Any]]]:
    """TFMA's metrics of each slice ((column, value), ...) as JSON; those of all rows come first."""
    import tensorflow_model_analysis as tfma

    results = tfma.load_eval_result(uri).slicing_metrics
    return [
        (slice_key, metrics[""][""])
        for slice_key, metrics in sorted(results, key=lambda item: (len(item[0]), str(item[0])))
    ]


def _slices(uri: str) -> list[tuple[str, dict[str, Any]]]:
    """`slices_of`, each slice as one text; that of all rows is ""."""
    return [
        (", ".join(f"{column}={value}" for column, value in slice_key), metrics)
        for slice_key, metrics in slices_of(uri)
    ]


def slice_values(uri: str) -> list[tuple[str, dict[str, float]]]:
    """The metrics of each slice that are numbers; the slice of all rows, "", comes first."""
    found = []
    for name, metrics in _slices(uri):
        # NaN and infinities are texts.
        values = {
            metric: float(value["doubleValue"])
            for metric, value in metrics.items()
            if "doubleValue" in value
        }
        share = classes.largest_share(classes.matrix_of(metrics))
        if share is not None:
            values[LARGEST_CLASS] = share
        found.append((name, values))
    return found


def _warn_by_baselines(
    config: PipelineConfig, records: dict[str, NodeRecord], console: Console
) -> None:
    evaluation = find_output(records, NodeName.EVALUATOR, "evaluation")
    if evaluation is None:
        return
    values = dict(slice_values(evaluation.uri)).get("", {})
    names = config.evaluation.metric_names(config.label.kind)
    shown = {name: values[name] for name in names if name in values}
    found = baselines.read(records)
    sentences = [
        *baselines.worse_than_a_constant(shown, found),
        *baselines.worse_than_linear(config.evaluation.judged_by(config.label.kind), shown, found),
        *too_good(shown, baselines.read_all(records)),
    ]
    for sentence in sentences:
        text = Text.assemble(("warning", "bold yellow"), f": {sentence}.")
        console.print(text, highlight=False, soft_wrap=True)


def _few_rows(evaluator: NodeRecord, console: Console) -> None:
    evaluation = evaluator.output("evaluation")
    values = dict(slice_values(evaluation.uri)).get("", {}) if evaluation else {}
    judged = values.get(ROWS, FEW_JUDGED)
    if judged < FEW_JUDGED:
        rows = "1 row" if judged == 1 else f"{judged:.0f} rows"
        console.print(
            Text.assemble(
                ("warning", "bold yellow"), f": the metrics mean little: they are of {rows} only."
            ),
            soft_wrap=True,
        )


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}"


def _of_baseline(baseline: Baseline, metric: str) -> str:
    if metric in baseline.metrics and baseline.metrics[metric] is None:
        return "undefined"
    return _number(baseline.metrics.get(metric))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if math.isfinite(value) else "undefined"


def _bounds(config: PipelineConfig, metric: str, uri: str) -> str:
    threshold = config.evaluation.thresholds.get(metric, MetricThreshold())
    parts = []
    evaluation = config.evaluation
    if evaluation.against_constant and metric == evaluation.judged_by(config.label.kind):
        found = against_constant.comparison_of(_slices(uri)[0][1])
        parts += filter(None, [against_constant.format_bound(found, metric)])
    if threshold.lower_bound is not None:
        parts.append(f"≥ {threshold.lower_bound:g}")
    if threshold.upper_bound is not None:
        parts.append(f"≤ {threshold.upper_bound:g}")
    if threshold.max_loss is not None:
        sign = "-" if METRICS[metric].higher_is_better else "+"
        parts.append(f"{sign}{threshold.max_loss:g} of baseline")
    return ", ".join(parts)


def cautions(records: dict[str, NodeRecord]) -> list[str]:
    """What Transform took without complaint: told when it ends, and again in each summary."""
    graph = find_output(records, NodeName.TRANSFORM, "transform_graph")
    if graph is None or not Path(graph.uri).is_dir():
        return []
    from transform import column_cautions

    return column_cautions(graph.uri)


def show_verdict(config: PipelineConfig, records: dict[str, NodeRecord], console: Console) -> None:
    """Tells whether the model is blessed, and what it failed of."""
    blessing = find_output(records, NodeName.EVALUATOR, "blessing")
    if blessing is None:
        return
    if blessing.properties.get("blessed") == 1:
        against = f"every threshold holds{_compared(config, blessing)}."
        console.print(Text.assemble(("blessed", "bold green"), f": {against}"), soft_wrap=True)
    else:
        result, reasons = verdict(config, records, blessing)
        console.print(Text.assemble((result, "bold red"), ", so not pushed:"))
        for reason in reasons:
            console.print(f"  {reason}", markup=False, highlight=False, soft_wrap=True)
    pushed = pushed_model(records)
    if pushed is not None:
        console.print(
            Text.assemble(("pushed", "bold green"), f" to {short(pushed)}"), soft_wrap=True
        )


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
    """Whether the Evaluator of the run that just ended judged the model and did not bless it.

    Without thresholds nothing is judged. A run of which no node ran (TFX's command line reads a
    pipeline so) says nothing of the latest one's model.
    """
    node = state.node(NodeName.EVALUATOR)
    if node is None or node.status not in ("done", "cached") or not config.evaluation.is_judged:
        return False
    blessing = find_output(latest_run_of(config), NodeName.EVALUATOR, "blessing")
    return blessing is not None and blessing.properties.get("blessed") != 1


def _compared(config: PipelineConfig, blessing: OutputArtifact) -> str:
    """What the model was compared with, as the end of a sentence."""
    changes = [name for name, t in config.evaluation.thresholds.items() if t.max_loss is not None]
    if "baseline_model_id" not in blessing.properties:
        return "; there was no blessed model yet to compare with"
    if not changes:
        return "; not compared with the latest blessed model: no threshold sets max_loss"
    return f", {', '.join(changes)} against the latest blessed model too"


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
    """One sentence per threshold that does not hold, from TFMA's validation result."""
    import tensorflow_model_analysis as tfma

    if evaluation is None:
        return []
    result = tfma.load_validation_result(evaluation.uri)
    reasons = []
    for validation in result.metric_validations_per_slice:
        for failure in validation.failures:
            name = failure.metric_key.name
            if name == BETTER_THAN_CONSTANT:
                found = against_constant.comparison_of(_slices(evaluation.uri)[0][1])
                reasons.append(against_constant.explain_refusal(found, judged_by))
                continue
            threshold = failure.metric_threshold
            value = _number(failure.metric_value.double_value.value)
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
                reasons.append(
                    f"{name} {_where_undefined(name)}: it was not judged, and no bound holds for it"
                )
                continue
            if bounds.HasField("lower_bound"):
                reasons.append(f"{name} is {value}; needed at least {bounds.lower_bound.value:g}")
            if bounds.HasField("upper_bound"):
                reasons.append(f"{name} is {value}; allowed at most {bounds.upper_bound.value:g}")
    return reasons or [f"TFMA gives no reason; see {evaluation.uri}"]


def _where_undefined(metric: str) -> str:
    known = WHERE_UNDEFINED.get(metric)
    return "is undefined" + (f", as where {known}" if known else "")


def unusable_labels(config: PipelineConfig, records: Mapping[str, NodeRecord]) -> list[str]:
    """A sentence on the judged rows whose label is missing or invalid; none where there is none.

    Transform writes NaN for such a label, or class -1.
    """
    import tensorflow as tf

    written = find_output(records, NodeName.TRANSFORM, "transformed_examples")
    if written is None:
        return []
    split = config.data.judged_split
    files = sorted(map(str, Path(written.uri).glob(f"Split-{split}/*.gz")))
    label, rows, bad = config.label.column, 0, []
    for record in tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator():
        rows += 1
        feature = tf.train.Example.FromString(record).features.feature[label]
        finite = all(map(math.isfinite, feature.float_list.value))
        if not finite or list(feature.int64_list.value) == [-1]:
            bad.append(rows)
    if not bad:
        return []
    shown = ", ".join(map(str, bad[:SHOWN_ROWS])) + (", ..." if len(bad) > SHOWN_ROWS else "")
    return [
        f"label {label!r} is missing, invalid or of an unknown class in {len(bad):,} of {rows:,} "
        f"{split} rows (rows {shown} of {short(Path(written.uri))}/Split-{split}): leave them out "
        "of the data, or correct them"
    ]


def pushed_model(records: Mapping[str, NodeRecord]) -> Path | None:
    """Folder of the model that the run pushed (or that its cached Pusher pushed), or None."""
    pushed = find_output(records, NodeName.PUSHER, "pushed_model")
    if pushed is None or pushed.properties.get("pushed") != 1:
        return None
    return Path(str(pushed.properties["pushed_destination"]))


def _below(uri: str, root: str) -> str:
    return uri.removeprefix(f"{root}/")


def short(path: Path) -> str:
    """The path as the user would type it from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
