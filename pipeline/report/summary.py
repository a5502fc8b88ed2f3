"""The end of a run on the terminal: nodes, trials, metrics against thresholds, verdict, model."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from components.input_gradients.summary import AttributionSummary
from pipeline.common.json_types import JsonObject
from pipeline.config.evaluation import FEW_JUDGED, MEAN_LABEL
from pipeline.graph.nodes import NODES
from pipeline.report.console import Consoles, print_text
from pipeline.report.metrics import (
    LARGEST_CLASS,
    Matrix,
    calibration_sentence,
    class_scores,
)
from pipeline.report.progress import RunState, duration
from pipeline.report.result import RunResult
from pipeline.report.run_record import RunRecord
from pipeline.report.run_warnings import BASELINE_NAMES
from pipeline.report.summary_file import nodes_of
from pipeline.report.tables import (
    Cell,
    Column,
    Row,
    Table,
    metric_cell,
    number_cell,
    print_table,
    short,
)
from shared_core.run_warning import count_warnings

_MOST_COMPARED = 10
"""Classes up to which the table says how often each was taken for each."""

MOST_CLASSES = 30


def show(run: RunResult, state: RunState, consoles: Consoles) -> None:
    """Print the summary of the run that just ended."""
    console = consoles.progress
    console.print()
    table = nodes_table(run, nodes_of(state))
    total = ("all nodes", "", duration(sum(node.seconds for node in state.nodes)), "")
    print_table(console, replace(table, rows=[*table.rows, Row([*map(Cell, total)])]))
    console.print()
    if run.trials:
        print_table(console, _first(trials_table(run), 10, ""))
        console.print()
    show_metrics(run, console)
    for node in state.nodes:
        if node.training is not None and node.training.advice:
            print_text(console, f"{node.name}: {node.training.advice}.")
    if run.attributions is not None:
        print_table(console, _first(attributions_table(run.attributions), 10))
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


def nodes_table(run: RunResult, nodes: Sequence[JsonObject], folder: Path | None = None) -> Table:
    """Return the nodes of summary.json with their result, time and main outputs.

    `folder` is that of a page, whose cells link to the outputs.
    """
    root = run.config.pipeline_root
    rows = []
    for node in nodes:
        name, outputs = node["name"], run.nodes.get(node["name"], {})
        main = list(outputs)
        if name in NODES:  # of a user's node, all
            main = [key for key in main if key in NODES[name].main_outputs] or main[:1]
        uris = [outputs[key].uri for key in main]
        is_there = folder is not None and uris and Path(uris[0]).is_dir()
        result = "run" if node["result"] == "done" else node["result"]
        cells = [
            Cell(name),
            Cell(result, state="quiet" if result == "cached" else ""),
            Cell(duration(node["seconds"]), node["seconds"]),
            Cell(
                "\n".join(uri.removeprefix(f"{root}/") for uri in uris),
                link=os.path.relpath(uris[0], folder) if is_there else "",
            ),
        ]
        rows.append(Row(cells))
    outputs = f"outputs, below\n{short(Path(root))}"
    return Table(
        "Nodes", [Column("node"), Column("result"), Column("time", True), Column(outputs)], rows
    )


def trials_table(run: RunResult) -> Table:
    """Return the trials of the Tuner with their scores and settings, best first."""
    assert run.config.tuning is not None
    settings = list(run.config.tuning.search)
    rows = []
    for trial in run.trials:
        number = int(trial["trial_id"]) + 1
        cells = [Cell(str(number), number), metric_cell(trial["score"])]
        cells += [_setting(trial.get(name)) for name in settings]
        rows.append(Row(cells))
    names = (run.config.tuning.objective, *settings)
    columns = [Column(name, True) for name in ("trial", *names)]
    return Table("Trials of the Tuner, best first", columns, rows, filter="trials")


def _setting(value: object) -> Cell:
    number = float(value) if isinstance(value, int | float) else None
    return Cell(f"{value:.4g}" if isinstance(value, float) else str(value), number)


def attributions_table(summary: AttributionSummary) -> Table:
    """Return the columns by the size of their attributions."""
    help_ = "its sign: whether the column raises or lowers the prediction"
    columns = [Column("mean |attribution|", True), Column("mean attribution", True, help_)]
    rows = []
    for name, size in summary.strongest():
        mean = number_cell(summary.mean[name], f"{summary.mean[name]:+.4g}")
        rows.append(Row([Cell(name), number_cell(size), mean]))
    return Table("All columns", [Column("strongest columns"), *columns], rows, filter="columns")


def show_metrics(run: RunResult, console: Console) -> None:
    """Print the Evaluator's metrics beside those of the baselines, classes and calibration."""
    if not run.slices:
        return
    slices = slices_table(run)
    blank = [Cell("")] * (len(run.counts) + 1)
    models = [
        Row([replace(each, state="quiet") for each in (row.cells[0], *blank, *row.cells[1:])])
        for row in models_table(run).rows[1:]
    ]
    print_table(console, replace(slices, rows=[*slices.rows, *models]))
    console.print()
    if run.all_rows.matrix:
        table = classes_table(run.all_rows.matrix, run.class_names, counted=run.counted)
        print_table(console, _first(table, MOST_CLASSES, "classes"))
        console.print()
    if run.config.label.kind != "regression" and (bins := run.all_rows.bins):
        print_text(console, calibration_sentence(bins))
        console.print()


def _first(table: Table, most: int, what: str = "columns") -> Table:
    """Return the first rows of a table, and a row that counts the others."""
    more = len(table.rows) - most
    if more <= 0:
        return table
    last = Cell(" ".join(filter(None, (f"and {more:,} more", what))), state="quiet")
    blank = [Cell("")] * (len(table.columns) - 1)
    return replace(table, rows=[*table.rows[:most], Row([last, *blank])])


def slices_table(run: RunResult) -> Table:
    """Return the metrics of each slice, all rows first."""
    # With several classes, TFMA averages a label of 0 or 1 for each class: 1 / classes.
    of_label = LARGEST_CLASS if run.config.label.kind == "multiclass" else MEAN_LABEL
    names = (of_label, *run.metric_names)
    rows = []
    for each in run.slices:
        cells = [_count(each.values.get(count)) for count in run.counts]
        cells += [metric_cell(each.values[n]) if n in each.values else Cell("-") for n in names]
        rows.append(Row([Cell(each.name or "all rows"), *cells]))
    headings = (*run.counts.values(), of_label.replace("_", " "), *run.metric_names)
    columns = [Column("slice"), *(Column(name, True) for name in headings)]
    several = len(rows) - 1
    title = f"Metrics of {several:,} slices" if several else "Metrics"
    return Table(title, columns, rows, filter="slices" if several > 8 else "")


def _count(value: float | None) -> Cell:
    if value is None:
        return Cell("")
    few = value < FEW_JUDGED
    note = f"fewer than {FEW_JUDGED}: metrics of so few rows mean little" if few else ""
    return Cell(f"{value:,.10g}", value, "quiet" if few else "", note)


def models_table(run: RunResult, blessed: RunRecord | None = None) -> Table:
    """Return the metrics on all rows: of this model, the last blessed one and the baselines.

    The last row has what a model must reach.
    """
    names = run.metric_names
    models: list[tuple[Cell, Mapping[str, float | None]]] = [
        (Cell("this model"), run.all_rows.values)
    ]
    if blessed is not None:
        metrics = {name: each["value"] for name, each in blessed.summary["metrics"].items()}
        models.append((Cell(f"last blessed model ({blessed.name})"), metrics))
    for each in run.baselines:
        name = BASELINE_NAMES.get(each.name, each.name)
        models.append((Cell(name, note=each.is_what), each.metrics))
    rows = [
        Row([cell, *(metric_cell(values[n]) if n in values else Cell("-") for n in names)])
        for cell, values in models
    ]
    if run.config.evaluation.is_judged:
        rows.append(Row([Cell("needed on all rows"), *(Cell(run.needed(name)) for name in names)]))
    columns = [Column("model"), *(Column(name, True) for name in names)]
    return Table("Beside the baselines", columns, rows)


def classes_table(matrix: Matrix, names: Sequence[str], *, counted: str) -> Table:
    """Return a row for each class, most frequent first, and what it was taken for."""
    scores = class_scores(matrix)
    predicted = list(scores) if len(scores) <= _MOST_COMPARED else []
    rows = []
    for label, of_class in scores.items():
        cells = [Cell(class_name(label, names)), _count(of_class.rows)]
        cells += [Cell("-") if math.isnan(each) else metric_cell(each) for each in of_class[1:]]
        for other in predicted:
            n = matrix.get((label, other), 0.0)
            cells.append(Cell(f"{n:,.10g}", n, "bad" if n and other != label else ""))
        if not predicted:
            cells.append(Cell(_confused_with(label, matrix, names)))
        rows.append(Row(cells))
    headings = [counted, "share", "precision", "recall"]
    headings += [f"as {class_name(label, names)}" for label in predicted]
    columns = [Column("class"), *(Column(name, True) for name in headings)]
    if not predicted:
        columns.append(Column("most often taken for"))
    return Table("Scores of each class", columns, rows, filter="classes" if len(rows) > 8 else "")


def _confused_with(label: int, matrix: Matrix, names: Sequence[str]) -> str:
    wrong = {p: n for (a, p), n in matrix.items() if a == label and p != label and n > 0}
    if not wrong:
        return ""
    largest = max(wrong, key=lambda p: (wrong[p], -p))
    return f"{class_name(largest, names)} ({wrong[largest]:,.10g})"


def class_name(label: int, names: Sequence[str]) -> str:
    """Return the name of a class; its number where it has none, and `unknown` of -1."""
    return "unknown" if label < 0 else names[label] if label < len(names) else str(label)
