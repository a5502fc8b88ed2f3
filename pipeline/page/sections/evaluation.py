"""How good the model is: by slice, by threshold, calibration, confusions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.common.json_types import JsonObject
from pipeline.config.evaluation import FEW_JUDGED, ROWS, WEIGHTS
from pipeline.graph.node_names import NodeName
from pipeline.page import charts
from pipeline.page.elements import (
    Beside,
    Block,
    Cell,
    Chart,
    Column,
    Row,
    Section,
    Table,
    Text,
    Thresholds,
    number_cell,
)
from pipeline.page.finite import rounded
from pipeline.page.inputs import RunInputs
from pipeline.report import calibration, classes
from pipeline.report.score_curves import ThresholdCounts, counts_of
from pipeline.report.slices import slices_of

_ALL_ROWS = "all rows"
_MOST_WITH_CURVES = 50
"""Slices that have curves: those with the most rows."""


def section_of(run: RunInputs) -> Section:
    """Return the section: slices, and what suits the kind of the label."""
    folder = run.artifact(NodeName.EVALUATOR, "evaluation")
    if folder is None:
        text = "This run has no evaluation: the Evaluator did not finish, or its output is gone."
        return Section("evaluation", "Evaluation", [Text(text, "quiet")])
    found = slices_of(str(folder))
    if not found:
        text = f"The Evaluator judged no row of the split {run.summary['judged_split']}."
        return Section("evaluation", "Evaluation", [Text(text, "warning")])
    kind, all_rows = run.config.label.kind, found[0][1]
    blocks: list[Block] = [_slices(run, found)]
    if kind == "binary":
        blocks += _binary(run, all_rows)
    elif kind == "multiclass":
        blocks += [*_confusions(run, all_rows), *_calibration(run, all_rows)]
    return Section("evaluation", "Evaluation", blocks)


def _counted(run: RunInputs) -> str:
    return "rows" if run.config.features.weight is None else "weights"


def _slices(run: RunInputs, found: Sequence[tuple[tuple, JsonObject]]) -> Table:
    """Return a table of the metrics of each slice; curves are in the details of the rows."""
    weighted = run.config.features.weight is not None
    names = list(run.summary["metrics"])
    columns = [Column("slice"), Column("rows", True)]
    columns += [Column("weights", True, "sum of the weights of the rows")] if weighted else []
    columns += [Column(name, True) for name in names]
    by_rows = sorted((_number(metrics, ROWS) or 0.0 for _, metrics in found), reverse=True)
    least = by_rows[:_MOST_WITH_CURVES][-1]
    rows = []
    for key, metrics in found:
        name = ", ".join(f"{column}={value}" for column, value in key) or _ALL_ROWS
        count = _number(metrics, ROWS)
        cells = [Cell(name), _count(count)]
        cells += [_count(_number(metrics, WEIGHTS))] if weighted else []
        cells += [_metric(metrics, each) for each in names]
        # The curves of all rows are below the table.
        has_curves = key and (count or 0.0) >= least and run.config.label.kind == "binary"
        rows.append(Row(cells, _slice_curves(run, metrics) if has_curves else ()))
    slices = len(rows) - 1
    title = f"Metrics of {slices:,} slices" if slices else "Metrics"
    return Table(title, columns, rows, filter="slices" if slices > 8 else "")


def _count(value: float | None) -> Cell:
    few = value is not None and value < FEW_JUDGED
    text = None if value is None else f"{value:,.10g}"
    cell = number_cell(value, text, state="quiet" if few else "")
    note = f"fewer than {FEW_JUDGED}: metrics of so few rows mean little" if few else ""
    return Cell(cell.text, cell.value, cell.state, note)


def _metric(metrics: JsonObject, name: str) -> Cell:
    """Return a metric, with its confidence interval if the evaluation has one."""
    value = _number(metrics, name)
    bounded = metrics.get(name, {}).get("boundedValue")
    if value is None or not math.isfinite(value):
        return number_cell(value)
    text, note = f"{value:,.4f}", ""
    low, high = (_float((bounded or {}).get(key)) for key in ("lowerBound", "upperBound"))
    if low is not None and high is not None:
        text += f" ({low:,.4f} to {high:,.4f})"
        note = "the 95 % confidence interval is in parentheses"
    return Cell(text, value, note=note)


def _number(metrics: JsonObject, name: str) -> float | None:
    found = metrics.get(name, {})
    return _float(found.get("doubleValue", (found.get("boundedValue") or {}).get("value")))


def _float(value: object) -> float | None:
    return None if value is None else float(str(value))  # NaN and infinities are texts


def _slice_curves(run: RunInputs, metrics: JsonObject) -> list[Block]:
    counts = counts_of(metrics)
    if counts is None:
        return []
    if not counts.is_defined:
        return [Text(_undefined(counts), "quiet")]
    return [Beside([_roc(counts, metrics), *_calibration_chart(run, metrics)])]


def _binary(run: RunInputs, metrics: JsonObject) -> list[Block]:
    """Return the threshold slider with its curves, and the calibration."""
    counts = counts_of(metrics)
    if counts is None:
        text = (
            "There are no curves: this evaluation was written without a histogram of the "
            "probabilities. Run the pipeline again."
        )
        return [Text(text, "quiet"), *_calibration(run, metrics)]
    if not counts.is_defined:
        return [Text(_undefined(counts), "warning"), *_calibration(run, metrics)]
    shown = Thresholds(
        "Threshold of the probability",
        counted=_counted(run),
        thresholds=counts.thresholds.tolist(),
        true_positives=[rounded_count(each) for each in counts.true_positives],
        false_positives=[rounded_count(each) for each in counts.false_positives],
        positives=counts.positives,
        negatives=counts.negatives,
        blocks=[_roc(counts, metrics), _precision_recall(counts)],
    )
    return [shown, *_calibration(run, metrics, _scores(counts))]


def rounded_count(value: float) -> float:
    """Return a count of rows, or a sum of weights, with twelve significant digits."""
    return float(f"{value:.12g}")


def _undefined(counts: ThresholdCounts) -> str:
    if not math.isfinite(counts.positives + counts.negatives):
        return "There are no curves: a label or a probability is not a number."
    if counts.positives + counts.negatives <= 0:
        return "There are no curves: these rows have no weight."
    which = "negative" if counts.positives <= 0 else "positive"
    return f"There are no curves: all rows are {which}."


def _roc(counts: ThresholdCounts, metrics: JsonObject) -> Chart:
    x, y = counts.roc()
    # The Evaluator's own value, from 10,000 thresholds, where the metric is computed.
    area = _number(metrics, "auc")
    area = counts.auc if area is None or not math.isfinite(area) else area
    t = [None, *(rounded_count(each) for each in counts.thresholds[::-1]), None]
    data = {
        "x": [rounded(each) for each in x],
        "y": [rounded(each) for each in y],
        "t": t,
        "place": list(range(len(x))),
    }
    spec = charts.threshold_curve("false positive rate", "true positive rate", diagonal=True)
    text = f"The area under the curve is {area:.4f}"
    return Chart(f"ROC curve, area {area:.4f}", spec, data, text)


def _precision_recall(counts: ThresholdCounts) -> Chart:
    found = counts.true_positives + counts.false_positives
    precision = [
        rounded(hits / every) if every > 0 else None
        for hits, every in zip(counts.true_positives, found, strict=True)
    ]
    data = {
        "x": [rounded(each / counts.positives) for each in counts.true_positives],
        "y": precision,
        "t": [rounded_count(each) for each in counts.thresholds],
        "place": list(range(len(found))),
    }
    share = counts.positives / (counts.positives + counts.negatives)
    text = f"A random order of the rows has precision {share:.4f} at any recall"
    spec = charts.threshold_curve("recall", "precision")
    return Chart("Precision and recall", spec, data, text)


def _scores(counts: ThresholdCounts) -> Chart:
    """Return how the probabilities of each class are distributed, in 20 intervals."""
    edges = np.linspace(0, 1, 21)
    at = np.searchsorted(counts.thresholds, edges - 1e-12)
    data: dict[str, list] = {"low": [], "high": [], "y": [], "series": []}
    for name, above, every in (
        ("negative", counts.false_positives, counts.negatives),
        ("positive", counts.true_positives, counts.positives),
    ):
        # A probability of 0 is not above the threshold 0.
        rows = np.r_[every, above[at[1:-1]]] - above[at[1:]]
        data["low"] += [rounded(each) for each in edges[:-1]]
        data["high"] += [rounded(each) for each in edges[1:]]
        data["y"] += [rounded(each / every) for each in rows]
        data["series"] += [name] * len(rows)
    spec = charts.histogram("predicted probability", "share of the class", series="label")
    text = "The better a model separates the classes, the less the bars overlap"
    return Chart("Probabilities of both classes", {**spec, "height": 260}, data, text)


def _calibration(run: RunInputs, metrics: JsonObject, *beside: Chart) -> list[Block]:
    bins = calibration.bins_of(metrics)
    shown = _calibration_chart(run, metrics)
    if not shown:
        return [*beside]
    sentence = calibration.sentence(bins)
    return [Beside([*shown, *beside]), Text(f"{sentence[0].upper()}{sentence[1:]}.")]


def _calibration_chart(run: RunInputs, metrics: JsonObject) -> list[Chart]:
    bins = calibration.bins_of(metrics)
    if not bins or not all(math.isfinite(each.observed + each.predicted) for each in bins):
        return []
    data = {
        "x": [rounded(each.predicted) for each in bins],
        "y": [rounded(each.observed) for each in bins],
        "rows": [rounded(each.rows) for each in bins],
    }
    what = "share of positive rows" if run.config.label.kind == "binary" else "share correct"
    spec = charts.calibration("mean predicted probability", what, _counted(run))
    text = "Points on the diagonal are calibrated; the size of a point is its number of rows"
    return [Chart("Calibration", spec, data, text)]


_MOST_CLASSES = 30


def _confusions(run: RunInputs, metrics: JsonObject) -> list[Block]:
    """Return the confusion matrix of the most frequent classes, and the scores of each class."""
    matrix = classes.matrix_of(metrics)
    if not matrix:
        return [Text("The evaluation has no confusion matrix.", "quiet")]
    names = classes.class_names(run.nodes.get(NodeName.TRAINER))
    scores = classes.scores(matrix)
    shown = list(scores)[:_MOST_CLASSES]
    counted = _counted(run)
    cells = [(a, p, matrix.get((a, p), 0.0)) for a in shown for p in shown]
    data = {
        "y": [_class(a, names) for a, _, _ in cells],
        "x": [_class(p, names) for _, p, _ in cells],
        "n": [rounded(n) for _, _, n in cells],
    }
    order = [_class(each, names) for each in shown]
    spec = charts.heat_map("predicted class", "actual class", counted, bins=False, order=order)
    title = "Confusion matrix"
    if len(scores) > len(shown):
        title += f", the {len(shown)} most frequent of {len(scores):,} classes"
    right = sum(n for (a, p), n in matrix.items() if a == p)
    text = f"{right:,.10g} of {sum(matrix.values()):,.10g} {counted} are on the diagonal"
    rows = [
        Row(
            [
                Cell(_class(each, names)),
                number_cell(found.rows, f"{found.rows:,.10g}"),
                *(number_cell(value) for value in (found.share, found.precision, found.recall)),
                Cell(_confused_with(each, matrix, names)),
            ]
        )
        for each, found in scores.items()
    ]
    columns = [
        Column("class"),
        *(Column(name, True) for name in (counted, "share", "precision", "recall")),
        Column("most often taken for"),
    ]
    table = Table("Scores of each class", columns, rows, filter="classes" if len(rows) > 8 else "")
    return [Chart(title, spec, data, text), table]


def _confused_with(each: int, matrix: Mapping[tuple[int, int], float], names: list[str]) -> str:
    wrong = {p: n for (a, p), n in matrix.items() if a == each and p != each and n > 0}
    if not wrong:
        return ""
    largest = max(wrong, key=lambda p: (wrong[p], -p))
    return f"{_class(largest, names)} ({wrong[largest]:,.10g})"


def _class(each: int, names: Sequence[str]) -> str:
    return names[each] if 0 <= each < len(names) else f"class {each}" if each >= 0 else "unknown"
