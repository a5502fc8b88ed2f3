"""The end of a run: nodes, trials, metrics against thresholds, verdict, location of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.config.config import PipelineConfig
from pipeline.config.evaluation import (
    MEAN_LABEL,
    METRICS,
    ROWS,
    WEIGHTS,
    MetricThreshold,
)
from pipeline.graph.node_names import NodeName
from pipeline.graph.nodes import NODES
from pipeline.report import against_constant, attributions, baselines, calibration, classes, trials
from pipeline.report.console import Consoles, print_text
from pipeline.report.progress import RunState, duration
from pipeline.report.records import NodeRecord, OutputArtifact, find_output, latest_run_of
from pipeline.report.run_warnings import run_warnings
from pipeline.report.short_path import short
from pipeline.report.slices import LARGEST_CLASS, metric_number, named_slices, slice_values
from pipeline.report.stacked_tables import print_table
from pipeline.report.verdict import show_verdict
from trainer_module.baselines.record import Baseline


def show(config: PipelineConfig, state: RunState, consoles: Consoles) -> None:
    """Print the summary of the run that just ended."""
    console = consoles.progress
    records = latest_run_of(config)
    console.print()
    print_table(console, _nodes(config, state, records))
    console.print()
    results = find_output(records, NodeName.TUNER, "tuner_results")
    if config.tuning is not None and results is not None:
        print_table(console, trials.table(config.tuning, results.uri))
        console.print()
    show_metrics(config, records, console)
    for node in state.nodes:
        if node.training is not None and node.training.advice:
            print_text(console, f"{node.name}: {node.training.advice}.")
    explained = attributions.read(records)
    if explained is not None:
        print_table(console, attributions.table_of(explained))
        console.print()
    show_warnings_and_verdict(config, records, consoles)


def show_warnings_and_verdict(
    config: PipelineConfig, records: dict[str, NodeRecord], consoles: Consoles
) -> None:
    """Print the warnings of the run, and whether the model is blessed with them."""
    warnings = run_warnings(config, records)
    for warning in warnings:
        print_text(consoles.warnings, Text.assemble(("warning", "bold yellow"), f": {warning}"))
    show_verdict(config, records, consoles.verdict, warnings=len(warnings))


def _nodes(config: PipelineConfig, state: RunState, records: dict[str, NodeRecord]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("node", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    below = Text(f"outputs, below\n{short(Path(config.pipeline_root))}")
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
    """Return the outputs to show: those in the node's table row; for a user's node, all."""
    if node not in NODES:
        return list(outputs)
    return [key for key in outputs if key in NODES[node].main_outputs] or list(outputs)[:1]


def show_metrics(config: PipelineConfig, records: dict[str, NodeRecord], console: Console) -> None:
    """Print the Evaluator's metrics beside those of the baselines."""
    evaluator = records.get(NodeName.EVALUATOR)
    if evaluator:
        print_table(console, metrics_table(config, evaluator, baselines.read(records)))
        console.print()
        _classes(config, records, console)
        _calibration(config, records, console)


def metrics_table(
    config: PipelineConfig,
    evaluator: NodeRecord,
    beside: Sequence[Baseline] = (),
) -> Table:
    """Return the Evaluator's metrics with a row for each slice, and the baselines on all rows."""
    names = config.evaluation.metric_names(config.label.kind)
    weighted = [WEIGHTS] if config.features.weight else []
    evaluation = evaluator.output("evaluation")
    table = Table(box=None, header_style="bold", pad_edge=False)
    counts = ["rows", *(["weights"] if weighted else [])]
    # With several classes, TFMA averages a label of 0 or 1 for each class: 1 / classes.
    of_label = LARGEST_CLASS if config.label.kind == "multiclass" else MEAN_LABEL
    for heading in ("slice", *counts, of_label.replace("_", " "), *names):
        table.add_column(heading, justify="left" if heading == "slice" else "right", no_wrap=True)
    if evaluation is None:
        return table
    for name, values in slice_values(evaluation.uri):
        table.add_row(
            Text(name or "all rows"),
            *(_count(values.get(metric)) for metric in (ROWS, *weighted)),
            *(metric_number(values.get(metric)) for metric in (of_label, *names)),
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
    _, metrics = named_slices(evaluation.uri)[0]
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
    bins = calibration.bins_of(named_slices(evaluation.uri)[0][1])
    if bins:
        counted = "weights" if config.features.weight else "rows"
        print_table(console, calibration.table_of(bins, counted=counted))
        print_text(console, calibration.sentence(bins))
        console.print()


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}"


def _of_baseline(baseline: Baseline, metric: str) -> str:
    if metric in baseline.metrics and baseline.metrics[metric] is None:
        return "undefined"
    return metric_number(baseline.metrics.get(metric))


def _bounds(config: PipelineConfig, metric: str, uri: str) -> str:
    threshold = config.evaluation.thresholds.get(metric, MetricThreshold())
    parts = []
    evaluation = config.evaluation
    if evaluation.against_constant and metric == evaluation.judged_by(config.label.kind):
        found = against_constant.comparison_of(named_slices(uri)[0][1])
        parts += filter(None, [against_constant.format_bound(found, metric)])
    if threshold.lower_bound is not None:
        parts.append(f"≥ {threshold.lower_bound:g}")
    if threshold.upper_bound is not None:
        parts.append(f"≤ {threshold.upper_bound:g}")
    if threshold.max_loss is not None:
        sign = "-" if METRICS[metric].higher_is_better else "+"
        parts.append(f"{sign}{threshold.max_loss:g} of baseline")
    return ", ".join(parts)


def _below(uri: str, root: str) -> str:
    return uri.removeprefix(f"{root}/")
