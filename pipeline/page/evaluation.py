"""How good the model is: beside the baselines, by slice, by threshold, calibration, confusions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pipeline.page import charts
from pipeline.page.elements import (
    Block,
    Chart,
    PageRun,
    Section,
    Text,
    Thresholds,
    rounded,
)
from pipeline.report.metrics import ThresholdCounts, calibration_sentence, class_scores
from pipeline.report.result import RunResult
from pipeline.report.summary import (
    MOST_CLASSES,
    class_name,
    classes_table,
    models_table,
    slices_table,
)


def section_of(run: PageRun) -> Section:
    """Return the section: baselines, slices, and what suits the kind of the label."""
    result = run.result
    if not result.slices:
        text = "This run has no evaluation: the Evaluator did not finish, or its output is gone."
        return Section("evaluation", "Evaluation", [Text(text, "quiet")])
    blocks: list[Block] = [models_table(result, run.blessed), slices_table(result)]
    if result.config.label.kind == "binary":
        blocks += _binary(result)
    elif result.config.label.kind == "multiclass":
        blocks += [*_confusions(result), *_calibration(result)]
    return Section("evaluation", "Evaluation", blocks)


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
        blocks=[_roc(counts, run.all_rows.values), _precision_recall(counts)],
    )
    return [shown, *_calibration(run)]


def _roc(counts: ThresholdCounts, values: Mapping[str, float]) -> Chart:
    x, y = counts.roc()
    # The Evaluator's own value, from 10,000 thresholds, where the metric is computed.
    area = values.get("auc", math.nan)
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


def _calibration(run: RunResult) -> list[Block]:
    bins = run.all_rows.bins
    if not bins or not all(math.isfinite(each.observed + each.predicted) for each in bins):
        return []
    data = {
        "x": rounded(each.predicted for each in bins),
        "y": rounded(each.observed for each in bins),
        "rows": rounded(each.rows for each in bins),
    }
    what = "share of positive rows" if run.config.label.kind == "binary" else "share correct"
    text = "Points on the diagonal are calibrated; the size of a point is its number of rows"
    sentence = calibration_sentence(bins)
    chart = Chart("Calibration", charts.calibration(what, run.counted), data, text)
    return [chart, Text(f"{sentence[0].upper()}{sentence[1:]}.")]


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
    return [Chart(title, spec, data, text), classes_table(matrix, names, counted=counted)]
