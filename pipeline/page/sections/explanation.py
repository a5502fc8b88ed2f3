"""What the predictions depend on: the strongest columns, and how the prediction moves with each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.input_gradients.summary import AttributionSummary
from pipeline.page import charts
from pipeline.page.elements import (
    Beside,
    Block,
    Cell,
    Chart,
    Column,
    Group,
    Row,
    Section,
    Table,
    Text,
    number_cell,
)
from pipeline.page.finite import rounded
from pipeline.page.inputs import RunInputs
from pipeline.page.partial_dependence import (
    PartialDependence,
    affordable_columns,
    partial_dependences,
)
from pipeline.page.sampled_rows import NoSample, SampledRows
from pipeline.report import attributions

_MOST_BARS = 20
_MOST_COLUMNS = 10
_MOST_CLASSES = 5


def section_of(run: RunInputs) -> Section:
    """Return the section: attributions if the run has them, and partial dependence."""
    summary = attributions.read(run.nodes)
    if summary is None:
        text = (
            "This run has no attributions. Add the line explain: {} to the configuration to "
            "measure how strongly the predictions depend on each column."
        )
        blocks: list[Block] = [Text(text, "quiet")]
    else:
        blocks = _attributions(summary)
    sample = run.sample
    if isinstance(sample, NoSample):
        blocks.append(Text(f"There is no partial dependence. {sample}", "quiet"))
    else:
        blocks += _partial_dependence(sample, summary)
    return Section("explanation", "Explanation", blocks)


def _attributions(summary: AttributionSummary) -> list[Block]:
    """Return the strongest columns, and all columns in the details."""
    text = (
        f"Integrated gradients on {summary.rows:,} rows of the {summary.split} split, "
        f"{summary.steps} steps; the mean prediction is {summary.mean_prediction:.4g}"
    )
    names, sizes = zip(*summary.strongest(_MOST_BARS), strict=True)
    data = {"y": list(names), "x": [rounded(size) for size in sizes]}
    chart = Chart(
        "Strongest columns", charts.bars("mean |attribution|", ""), data, description=text
    )
    mean = summary.mean
    rows = [
        Row([Cell(name), number_cell(size), number_cell(mean[name], f"{mean[name]:+.4g}")])
        for name, size in summary.strongest()
    ]
    columns = [
        Column("column"),
        Column("mean |attribution|", True),
        Column("mean attribution", True, "its sign: the direction in which the column moves it"),
    ]
    table = Table("All columns", columns, rows, filter="columns" if len(rows) > 8 else "")
    return [Text(f"{text}."), chart, Group("All columns", [table])]


def _partial_dependence(sample: SampledRows, summary: AttributionSummary | None) -> list[Block]:
    """Return charts of the ten strongest columns, else of those that change the prediction most."""
    known = [name for name in sample.model.columns if name in sample.rows.schema.names]
    if summary is not None:
        chosen = [name for name, _ in summary.strongest() if name in known][:_MOST_COLUMNS]
    else:
        chosen = known[: affordable_columns(sample)]
    found = partial_dependences(sample, chosen)
    if not found:
        text = "There is no partial dependence: no raw column has one value in each row."
        return [Text(text, "quiet")]
    which = f"the {len(found)} strongest columns"
    if summary is None:
        found = sorted(found, key=lambda each: -each.size)[:_MOST_COLUMNS]
        which = f"of {len(chosen)} columns, the {len(found)} that change it most"
    text = (
        f"Partial dependence: the mean prediction over {found[0].rows:,} of {sample.total:,} rows "
        f"of the {sample.split} split, with one column set to a value and the others as they are "
        f"(Friedman, 2001); {which}. Values are quantiles of the column, or its most frequent "
        "texts. Combinations that do not occur in the data count, too."
    )
    counts = np.bincount(sample.predictions.argmax(axis=1), minlength=sample.predictions.shape[1])
    outputs = np.argsort(-counts, kind="stable")[:_MOST_CLASSES].tolist()
    means = [each.means[:, outputs] for each in found]
    low, high = (float(end(list(map(end, means)))) for end in (np.nanmin, np.nanmax))
    scale = [rounded(low), rounded(high)] if high > low else None
    return [Text(text), Beside([_chart(each, outputs, scale, sample) for each in found])]


def _chart(
    found: PartialDependence,
    outputs: Sequence[int],
    scale: Sequence[float] | None,
    sample: SampledRows,
) -> Chart:
    """Return the chart of a column: the prediction, or the most frequent classes."""
    several, names = len(outputs) > 1, sample.model.classes
    is_probability = several or sample.model.kind == "binary"
    data: dict[str, list] = {"x": [], "y": [], "series": []}
    for place in outputs:
        data["x"] += [rounded(v) if isinstance(v, float) else v for v in found.values]
        data["y"] += [rounded(each) for each in found.means[:, place]]
        name = names[place] if place < len(names) else f"class {place}"
        data["series"] += [name] * len(found.values)
    if not several:
        del data["series"]
    spec = charts.dependence(
        "mean probability" if is_probability else "mean prediction",
        is_number=found.is_number,
        series="class" if several else None,
        scale=scale,
    )
    first = found.means[:, outputs[0]]
    text = f"From {first.min():.4g} to {first.max():.4g} over {len(found.values)} values"
    return Chart(found.column, spec, data, text)
