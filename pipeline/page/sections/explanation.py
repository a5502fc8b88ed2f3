"""What the predictions depend on: the strongest columns, and how the prediction moves with each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from components.input_gradients.summary import AttributionSummary, SliceAttributions
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
        blocks += _partial_dependence(sample, _columns(sample, summary), ranked=summary is not None)
    return Section("explanation", "Explanation", blocks)


def _attributions(summary: AttributionSummary) -> list[Block]:
    """Return the strongest columns of all rows, and those of each slice in the details."""
    strongest = summary.strongest(_MOST_BARS)
    every = summary.slices[0]
    data = {"y": [name for name, _ in strongest], "x": [rounded(size) for _, size in strongest]}
    text = (
        f"Integrated gradients on {every.rows:,} rows of the {summary.split} split, "
        f"{summary.steps} steps; the mean prediction is {summary.mean_prediction:.4g}"
    )
    chart = Chart(
        "Strongest columns", charts.bars("mean |attribution|", ""), data, description=text
    )
    rows = [
        Row(
            [
                Cell(name),
                number_cell(size),
                number_cell(every.mean[name], f"{every.mean[name]:+.4g}"),
            ]
        )
        for name, size in summary.strongest(len(every.mean))
    ]
    columns = [
        Column("column"),
        Column("mean |attribution|", True),
        Column("mean attribution", True, "its sign: the direction in which the column moves it"),
    ]
    table = Table("All columns", columns, rows, filter="columns" if len(rows) > 8 else "")
    blocks: list[Block] = [Text(f"{text}."), chart, Group("All columns", [table])]
    if len(summary.slices) > 1:
        blocks.append(_slices(summary.slices[1:]))
    return blocks


def _slices(slices: Sequence[SliceAttributions]) -> Group:
    rows = []
    for each in slices:
        strongest = sorted(each.mean_absolute.items(), key=lambda item: (-item[1], item[0]))
        name = f"{each.column}={'missing' if each.value is None else each.value}"
        shown = strongest[:_MOST_COLUMNS]
        data = {"y": [column for column, _ in shown], "x": [rounded(size) for _, size in shown]}
        chart = Chart(f"Strongest columns of {name}", charts.bars("mean |attribution|", ""), data)
        names = ", ".join(column for column, _ in strongest[:3])
        rows.append(
            Row([Cell(name), number_cell(each.rows, f"{each.rows:,}"), Cell(names)], [chart])
        )
    columns = [Column("slice"), Column("rows", True), Column("strongest columns")]
    table = Table("Strongest columns of each slice", columns, rows, filter="slices")
    return Group("By slice", [table])


def _columns(sample: SampledRows, summary: AttributionSummary | None) -> list[str]:
    """Return the raw columns to look at: the ten strongest, else as many as cost little."""
    known = [name for name in sample.model.columns if name in sample.rows.schema.names]
    if summary is not None:
        strongest = [name for name, _ in summary.strongest(len(summary.slices[0].mean))]
        return [name for name in strongest if name in known][:_MOST_COLUMNS]
    return known[: affordable_columns(sample)]


def _partial_dependence(
    sample: SampledRows, columns: Sequence[str], *, ranked: bool
) -> list[Block]:
    found = partial_dependences(sample, columns)
    if not found:
        text = "There is no partial dependence: no raw column has one value in each row."
        return [Text(text, "quiet")]
    if ranked:
        which = f"the {len(found)} strongest columns"
    else:
        found = sorted(found, key=lambda each: -each.size)[:_MOST_COLUMNS]
        which = f"of {len(columns)} columns, the {len(found)} that change it most"
    text = (
        f"Partial dependence: the mean prediction over {found[0].rows:,} of {sample.total:,} rows "
        f"of the {sample.split} split, with one column set to a value and the others as they are "
        f"(Friedman, 2001); {which}. Values are quantiles of the column, or its most frequent "
        "texts. Combinations that do not occur in the data count, too."
    )
    outputs = _outputs(sample)
    low = min(float(np.nanmin(each.means[:, list(outputs)])) for each in found)
    high = max(float(np.nanmax(each.means[:, list(outputs)])) for each in found)
    scale = [rounded(low), rounded(high)] if high > low else None
    shown = [_chart(each, outputs, scale, sample) for each in found]
    return [Text(text), Beside(shown)]


def _outputs(sample: SampledRows) -> Mapping[int, str]:
    """Return the outputs to show by place: the prediction, or the most frequent classes."""
    outputs = sample.predictions.shape[1]
    if outputs == 1:
        return {0: ""}
    counts = np.bincount(sample.predictions.argmax(axis=1), minlength=outputs)
    names = sample.model.classes
    places = np.argsort(-counts, kind="stable")[:_MOST_CLASSES].tolist()
    return {i: names[i] if i < len(names) else f"class {i}" for i in places}


def _chart(
    found: PartialDependence,
    outputs: Mapping[int, str],
    scale: Sequence[float] | None,
    sample: SampledRows,
) -> Chart:
    binary = sample.model.kind == "binary"
    title = "mean probability" if binary or len(outputs) > 1 else "mean prediction"
    data: dict[str, list] = {"x": [], "y": [], "series": []}
    for place, name in outputs.items():
        data["x"] += [rounded(v) if isinstance(v, float) else v for v in found.values]
        data["y"] += [rounded(each) for each in found.means[:, place]]
        data["series"] += [name] * len(found.values)
    several = len(outputs) > 1
    if not several:
        del data["series"]
    spec = charts.dependence(
        title, is_number=found.is_number, series="class" if several else None, scale=scale
    )
    first = next(iter(outputs))
    text = (
        f"From {found.means[:, first].min():.4g} to {found.means[:, first].max():.4g} over "
        f"{len(found.values)} values"
    )
    return Chart(found.column, spec, data, text)
