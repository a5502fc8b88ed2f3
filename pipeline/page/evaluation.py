"""How good the model is: beside the baselines, by slice, by threshold, calibration, confusions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.config.evaluation import FEW_JUDGED, ROWS
from pipeline.page import charts
from pipeline.page.elements import (
    Beside,
    Block,
    Cell,
    Chart,
    Column,
    PageRun,
    Row,
    Section,
    Table,
    Text,
    Thresholds,
    number_cell,
    rounded,
)
from pipeline.report.metrics import (
    Matrix,
    SliceMetrics,
    ThresholdCounts,
    calibration_sentence,
    class_scores,
)
from pipeline.report.result import RunResult
from pipeline.report.run_list import metrics_of
from pipeline.report.summary import MOST_CLASSES, class_name

_MOST_WITH_CURVES = 50
"""Slices that have curves: those with the most rows."""


def section_of(run: PageRun) -> Section:
    """Return the section: baselines, slices, and what suits the kind of the label."""
    blocks: list[Block] = [_baselines(run)] if run.summary["slices"] else []
    result = run.result
    if not result.slices:
        text = "This run has no evaluation: the Evaluator did not finish, or its output is gone."
        return Section("evaluation", "Evaluation", [*blocks, Text(text, "quiet")])
    blocks.append(_slices(result))
    if result.config.label.kind == "binary":
        blocks += _binary(result)
    elif result.config.label.kind == "multiclass":
        blocks += [*_confusions(result), *_calibration(result)]
    return Section("evaluation", "Evaluation", blocks)


def _baselines(run: PageRun) -> Table:
    """Return the metrics of this model, the last blessed one and the baselines, and the bounds."""
    summary = run.summary
    models: list[tuple[str, Mapping[str, float | None]]] = [("this model", metrics_of(run.record))]
    if run.blessed is not None:
        models.append((f"last blessed model ({run.blessed.name})", metrics_of(run.blessed)))
    models += [(each["description"], each["metrics"]) for each in summary["baselines"]]
    names = list(summary["metrics"])
    rows = [
        Row([Cell(model), *(number_cell(values.get(name)) for name in names)])
        for model, values in models
    ]
    if run.result.config.evaluation.is_judged:
        rows.append(Row([Cell("needed on all rows"), *(Cell(run.result.needed(n)) for n in names)]))
    columns = [Column("model"), *(Column(name, is_number=True) for name in names)]
    return Table("Beside the baselines", columns, rows)


def _slices(run: RunResult) -> Table:
    """Return a table of the metrics of each slice; curves are in the details of the rows."""
    headings = (*run.counts.values(), *run.metric_names)
    columns = [Column("slice"), *(Column(name, True) for name in headings)]
    by_rows = sorted((each.values.get(ROWS, 0.0) for each in run.slices), reverse=True)
    least = by_rows[:_MOST_WITH_CURVES][-1]
    rows = []
    for each in run.slices:
        cells = [Cell(each.name or "all rows"), *(_count(each.values.get(n)) for n in run.counts)]
        cells += [_metric(each.values.get(name)) for name in run.metric_names]
        # The curves of all rows are below the table.
        has_curves = each.key and each.values.get(ROWS, 0.0) >= least
        is_binary = run.config.label.kind == "binary"
        rows.append(Row(cells, _slice_curves(run, each) if has_curves and is_binary else ()))
    slices = len(rows) - 1
    title = f"Metrics of {slices:,} slices" if slices else "Metrics"
    return Table(title, columns, rows, filter="slices" if slices > 8 else "")


def _metric(value: float | None) -> Cell:
    return number_cell(value, None if value is None else f"{value:,.4f}")


def _count(value: float | None) -> Cell:
    few = value is not None and value < FEW_JUDGED
    text = None if value is None else f"{value:,.10g}"
    cell = number_cell(value, text, state="quiet" if few else "")
    note = f"fewer than {FEW_JUDGED}: metrics of so few rows mean little" if few else ""
    return Cell(cell.text, cell.value, cell.state, note)


def _slice_curves(run: RunResult, metrics: SliceMetrics) -> list[Block]:
    counts = metrics.counts
    if counts is None:
        return []
    if counts.why_undefined:
        return [Text(counts.why_undefined, "quiet")]
    return [Beside([_roc(counts, metrics), *_calibration_chart(run, metrics)])]


def _binary(run: RunResult) -> list[Block]:
    """Return the threshold slider with its curves, and the calibration."""
    counts = run.all_rows.counts
    if counts is None or counts.why_undefined:
        text = (
            counts.why_undefined
            if counts is not None
            else (
                "There are no curves: this evaluation was written without a histogram of the "
                "probabilities. Run the pipeline again."
            )
        )
        return [Text(text, "warning"), *_calibration(run)]
    shown = Thresholds(
        "Threshold of the probability",
        counted=run.counted,
        thresholds=counts.thresholds.tolist(),
        true_positives=[float(f"{each:.12g}") for each in counts.true_positives],
        false_positives=[float(f"{each:.12g}") for each in counts.false_positives],
        positives=counts.positives,
        negatives=counts.negatives,
        blocks=[_roc(counts, run.all_rows), _precision_recall(counts)],
    )
    return [shown, *_calibration(run, _scores(counts))]


def _roc(counts: ThresholdCounts, metrics: SliceMetrics) -> Chart:
    x, y = counts.roc()
    # The Evaluator's own value, from 10,000 thresholds, where the metric is computed.
    area = metrics.values.get("auc", math.nan)
    area = area if math.isfinite(area) else float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))
    t = [None, *rounded(counts.thresholds[::-1], 12), None]
    data = {"x": rounded(x), "y": rounded(y), "t": t, "place": list(range(len(x)))}
    spec = charts.threshold_curve("false positive rate", "true positive rate", diagonal=True)
    text = f"The area under the curve is {area:.4f}"
    return Chart(f"ROC curve, area {area:.4f}", spec, data, text)


def _precision_recall(counts: ThresholdCounts) -> Chart:
    hits, found = counts.true_positives, counts.true_positives + counts.false_positives
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(found > 0, hits / found, np.nan)
    data = {
        "x": rounded(hits / counts.positives),
        "y": rounded(precision),
        "t": rounded(counts.thresholds, 12),
        "place": list(range(len(found))),
    }
    share = counts.positives / (counts.positives + counts.negatives)
    text = f"A random order of the rows has precision {share:.4f} at any recall"
    return Chart("Precision and recall", charts.threshold_curve("recall", "precision"), data, text)


def _scores(counts: ThresholdCounts) -> Chart:
    """Return how the probabilities of each class are distributed, in 20 intervals."""
    edges = np.linspace(0, 1, 21)
    at = np.searchsorted(counts.thresholds, edges - 1e-12)
    data: dict[str, list] = {"low": [], "high": [], "y": [], "series": []}
    for name, above, total in (
        ("negative", counts.false_positives, counts.negatives),
        ("positive", counts.true_positives, counts.positives),
    ):
        # A probability of 0 is not above the threshold 0.
        rows = np.r_[total, above[at[1:-1]]] - above[at[1:]]
        data["low"] += rounded(edges[:-1])
        data["high"] += rounded(edges[1:])
        data["y"] += rounded(rows / total)
        data["series"] += [name] * len(rows)
    text = "The better a model separates the classes, the less the bars overlap"
    return Chart("Probabilities of both classes", charts.probabilities(), data, text)


def _calibration(run: RunResult, *beside: Chart) -> list[Block]:
    shown = _calibration_chart(run, run.all_rows)
    if not shown:
        return [*beside]
    sentence = calibration_sentence(run.all_rows.bins)
    return [Beside([*shown, *beside]), Text(f"{sentence[0].upper()}{sentence[1:]}.")]


def _calibration_chart(run: RunResult, metrics: SliceMetrics) -> list[Chart]:
    bins = metrics.bins
    if not bins or not all(math.isfinite(each.observed + each.predicted) for each in bins):
        return []
    data = {
        "x": rounded(each.predicted for each in bins),
        "y": rounded(each.observed for each in bins),
        "rows": rounded(each.rows for each in bins),
    }
    what = "share of positive rows" if run.config.label.kind == "binary" else "share correct"
    text = "Points on the diagonal are calibrated; the size of a point is its number of rows"
    return [Chart("Calibration", charts.calibration(what, run.counted), data, text)]


def _confusions(run: RunResult) -> list[Block]:
    """Return the confusion matrix of the most frequent classes, and the scores of each class."""
    matrix, names, counted = run.all_rows.matrix, run.class_names, run.counted
    if not matrix:
        return [Text("The evaluation has no confusion matrix.", "quiet")]
    scores = class_scores(matrix)
    shown = list(scores)[:MOST_CLASSES]
    cells = [(a, p, matrix.get((a, p), 0.0)) for a in shown for p in shown]
    data = {
        "y": [class_name(a, names) for a, _, _ in cells],
        "x": [class_name(p, names) for _, p, _ in cells],
        "n": rounded(n for _, _, n in cells),
    }
    spec = charts.confusions(counted, [class_name(label, names) for label in shown])
    title = "Confusion matrix"
    if len(scores) > len(shown):
        title += f", the {len(shown)} most frequent of {len(scores):,} classes"
    right = sum(n for (a, p), n in matrix.items() if a == p)
    text = f"{right:,.10g} of {sum(matrix.values()):,.10g} {counted} are on the diagonal"
    rows = [
        Row(
            [
                Cell(class_name(label, names)),
                number_cell(of_class.rows, f"{of_class.rows:,.10g}"),
                *(number_cell(value) for value in of_class[1:]),
                Cell(_confused_with(label, matrix, names)),
            ]
        )
        for label, of_class in scores.items()
    ]
    columns = [Column(name, True) for name in (counted, "share", "precision", "recall")]
    columns = [Column("class"), *columns, Column("most often taken for")]
    table = Table("Scores of each class", columns, rows, filter="classes" if len(rows) > 8 else "")
    return [Chart(title, spec, data, text), table]


def _confused_with(label: int, matrix: Matrix, names: Sequence[str]) -> str:
    wrong = {p: n for (a, p), n in matrix.items() if a == label and p != label and n > 0}
    if not wrong:
        return ""
    largest = max(wrong, key=lambda p: (wrong[p], -p))
    return f"{class_name(largest, names)} ({wrong[largest]:,.10g})"
