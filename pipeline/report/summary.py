"""The end of a run on the terminal: nodes, trials, metrics against thresholds, verdict, model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.config.evaluation import MEAN_LABEL
from pipeline.graph.nodes import NODES
from pipeline.report.console import Consoles, print_text
from pipeline.report.metrics import (
    LARGEST_CLASS,
    Bin,
    Matrix,
    calibration_sentence,
    class_scores,
    metric_number,
)
from pipeline.report.progress import RunState, duration
from pipeline.report.result import RunResult
from pipeline.report.run_warnings import BASELINE_NAMES
from pipeline.report.tables import print_table, short, table_of
from shared_core.run_warning import count_warnings
from trainer_module.baselines.record import Baseline

MOST_COMPARED = 10
"""Classes up to which the table says what each was taken for."""

MOST_CLASSES = 30
_MOST_TRIALS = 10
_STRONGEST = 10


def show(run: RunResult, state: RunState, consoles: Consoles) -> None:
    """Print the summary of the run that just ended."""
    console = consoles.progress
    console.print()
    print_table(console, nodes_table(run, state))
    console.print()
    if run.trials:
        print_table(console, trials_table(run))
        console.print()
    show_metrics(run, console)
    for node in state.nodes:
        if node.training is not None and node.training.advice:
            print_text(console, f"{node.name}: {node.training.advice}.")
    if run.attributions is not None:
        table = table_of("strongest columns", "mean |attribution|", "mean attribution")
        for name, size in run.attributions.strongest(_STRONGEST):
            table.add_row(Text(name), f"{size:.4g}", f"{run.attributions.mean[name]:+.4g}")
        print_table(console, table)
        console.print()
    for warning in run.warnings:
        print_text(consoles.warnings, Text.assemble(("warning", "bold yellow"), f": {warning}"))
    show_verdict(run, consoles.verdict)


def show_verdict(run: RunResult, console: Console) -> None:
    """Print whether the model is blessed, with how many warnings, and the violated thresholds."""
    if run.verdict is None:
        return
    verdict, reasons = run.verdict
    if verdict == "blessed":
        text = Text("blessed", "bold green")
        if run.warnings:
            text = Text(f"blessed with {count_warnings(len(run.warnings))}", "bold yellow")
        print_text(console, Text.assemble(text, f": every threshold holds{_compared(run)}."))
    else:
        print_text(console, Text.assemble((verdict, "bold red"), ", so not pushed:"))
        for reason in reasons:
            print_text(console, f"  {reason}")
    if run.pushed_model is not None:
        pushed = Text.assemble(("pushed", "bold green"), f" to {short(run.pushed_model)}")
        console.print(pushed, highlight=False, soft_wrap=True)


def _compared(run: RunResult) -> str:
    """Return the end of a sentence that names what the model was compared with."""
    thresholds = run.config.evaluation.thresholds
    changes = [name for name, each in thresholds.items() if each.max_loss is not None]
    if not run.compared_with_blessed:
        return "; there was no blessed model yet to compare with"
    if not changes:
        return "; not compared with the latest blessed model: no threshold sets max_loss"
    return f", {', '.join(changes)} also against the latest blessed model"


def nodes_table(run: RunResult, state: RunState) -> Table:
    """Return the nodes with their result, time and main outputs."""
    root = run.config.pipeline_root
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("node", "result", "time"):
        table.add_column(heading, justify="right" if heading == "time" else "left", no_wrap=True)
    table.add_column(Text(f"outputs, below\n{short(Path(root))}"), overflow="fold")
    for node in state.nodes:
        outputs = run.nodes[node.name].outputs if node.name in run.nodes else {}
        main = list(outputs)
        if node.name in NODES:  # of a user's node, all
            main = [key for key in main if key in NODES[node.name].main_outputs] or main[:1]
        uris = [outputs[key][-1].uri.removeprefix(f"{root}/") for key in main if outputs[key]]
        result = "run" if node.status == "done" else node.status
        table.add_row(
            node.name,
            Text(result, style="cyan" if result == "cached" else ""),
            duration(node.seconds),
            Text("\n".join(uris)),
        )
    table.add_row("all nodes", "", duration(sum(node.seconds for node in state.nodes)))
    return table


def trials_table(run: RunResult) -> Table:
    """Return the best trials of the Tuner with their scores and settings."""
    assert run.config.tuning is not None
    settings = run.trial_settings
    headings = [each.removeprefix("tuner/") for each in settings]
    table = table_of("trial", run.config.tuning.objective, *headings, left=0)
    for trial in run.trials[:_MOST_TRIALS]:
        table.add_row(
            str(int(trial["trial_id"]) + 1),
            f"{trial['score']:.4f}",
            *(Text(setting_text(trial[name])) for name in settings),
            style="bold" if trial is run.trials[0] else "",
        )
    if len(run.trials) > _MOST_TRIALS:
        table.add_row(Text(f"and {len(run.trials) - _MOST_TRIALS} more", style="dim"))
    return table


def setting_text(value: object) -> str:
    """Return the value of a setting, a number with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show_metrics(run: RunResult, console: Console) -> None:
    """Print the Evaluator's metrics beside those of the baselines, classes and calibration."""
    if not run.slices:
        return
    print_table(console, metrics_table(run))
    console.print()
    if run.all_rows.matrix:
        print_table(
            console, classes_table(run.all_rows.matrix, run.class_names, counted=run.counted)
        )
        console.print()
    if run.config.label.kind != "regression" and (bins := run.all_rows.bins):
        print_table(console, calibration_table(bins, counted=run.counted))
        print_text(console, calibration_sentence(bins))
        console.print()


def metrics_table(run: RunResult) -> Table:
    """Return the metrics of each slice, then the baselines and the bounds on all rows."""
    # With several classes, TFMA averages a label of 0 or 1 for each class: 1 / classes.
    of_label = LARGEST_CLASS if run.config.label.kind == "multiclass" else MEAN_LABEL
    names, empty = run.metric_names, [""] * (len(run.counts) + 1)
    table = table_of("slice", *run.counts.values(), of_label.replace("_", " "), *names)
    for each in run.slices:
        values = each.values
        table.add_row(
            Text(each.name or "all rows"),
            *("" if (n := values.get(count)) is None else f"{n:,.10g}" for count in run.counts),
            *(metric_number(values.get(metric)) for metric in (of_label, *names)),
        )
    for baseline in run.baselines:
        cells = [BASELINE_NAMES.get(baseline.name, baseline.name), *empty]
        cells += [_of_baseline(baseline, metric) for metric in names]
        table.add_row(*(Text(cell, style="dim") for cell in cells))
    if run.config.evaluation.is_judged:
        cells = ["needed on all rows", *empty, *map(run.needed, names)]
        table.add_row(*(Text(cell, style="dim") for cell in cells))
    return table


def _of_baseline(baseline: Baseline, metric: str) -> str:
    if metric in baseline.metrics and baseline.metrics[metric] is None:
        return "undefined"
    return metric_number(baseline.metrics.get(metric))


def classes_table(matrix: Matrix, names: Sequence[str], *, counted: str) -> Table:
    """Return a table with a row for each class, most frequent first, and its predicted classes.

    Args:
        matrix: The confusion matrix of all rows.
        names: Names of the classes, by id.
        counted: Unit of the matrix: rows or weights.
    """
    scores = class_scores(matrix)
    shown = list(scores)[:MOST_CLASSES]
    predicted = shown if len(scores) <= MOST_COMPARED else []
    taken_for = [f"as {class_name(label, names)}" for label in predicted]
    table = table_of("class", counted, "share", "precision", "recall", *taken_for)
    for label in shown:
        rows, *ratios = scores[label]
        cells = [(label == other, matrix.get((label, other), 0.0)) for other in predicted]
        table.add_row(
            Text(class_name(label, names)),
            f"{rows:,.10g}",
            *(metric_number(ratio).replace("undefined", "-") for ratio in ratios),
            *(Text(f"{n:,.10g}", style="" if right or not n else "red") for right, n in cells),
        )
    if left := len(scores) - len(shown):
        table.add_row(Text(f"and {left:,} more classes", style="dim"))
    return table


def class_name(label: int, names: Sequence[str]) -> str:
    """Return the name of a class; its number where it has none, and `unknown` of -1."""
    return "unknown" if label < 0 else names[label] if label < len(names) else str(label)


def calibration_table(bins: Sequence[Bin], *, counted: str) -> Table:
    """Return a column for each bin: mean probability, observed share, number of rows."""
    table = table_of("predicted", *(_probability(each.predicted) for each in bins))
    table.add_row("observed", *(_probability(each.observed) for each in bins))
    table.add_row(counted, *(f"{each.rows:,.10g}" for each in bins))
    return table


def _probability(value: float) -> str:
    return f"{value:.3f}".replace("nan", "-")
