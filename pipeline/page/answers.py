"""The first screen: is the model good, why, and can the result be trusted?"""

from __future__ import annotations

from pipeline.common.json_types import JsonObject
from pipeline.page import charts
from pipeline.page.elements import (
    Block,
    Chart,
    Group,
    Items,
    PageRun,
    Section,
    Text,
    Tile,
    Tiles,
    rounded,
)
from pipeline.page.importance import importances_of
from pipeline.report.run_record import RunRecord
from pipeline.report.run_warnings import BASELINE_NAMES
from pipeline.report.summary import attributions_table
from pipeline.report.tables import Cell, Column, Row, State, Table, number_cell
from shared_core.run_warning import RunWarning, count_warnings


def is_it_good(run: PageRun) -> Section:
    """Return the verdict, the distance to the baselines and the metrics; of a failed run, why."""
    summary, blocks = run.summary, list[Block]()
    error = summary["run"].get("error")
    if error:
        failed = summary["run"]["result"] == "failed"
        where = f"{error['node']} failed: " if failed and error["node"] else ""
        blocks.append(Text(f"{where}{error['message']}", "bad" if failed else "warning"))
    verdict, distance = summary["verdict"], _distance(run)
    if verdict["reasons"]:
        blocks.append(Items([f"{verdict['result']}: {each}" for each in verdict["reasons"]], "bad"))
        blocks += [Text(distance)] if distance else []
    elif verdict["result"] == "blessed":
        warnings = len(summary.get("warnings", ()))
        text = "Every threshold holds"
        text += f", with {count_warnings(warnings)}. " if warnings else ". "
        blocks.append(Text(f"{text}{distance}".strip(), "warning" if warnings else "good"))
    elif not error:
        blocks.append(Text("No node of this run judged a model.", "quiet"))
    if summary["slices"]:  # a model was evaluated
        blocks.append(_tiles(run))
    return Section("verdict", "Is it good?", blocks)


def _distance(run: PageRun) -> str:
    """Return a sentence with the selection metric, and how far the baselines are from it."""
    metric = run.result.judged_by
    value = run.summary["metrics"].get(metric, {}).get("value")
    if value is None:
        return ""
    parts = []
    for each in run.summary["baselines"]:
        reference, name = (
            each["metrics"].get(metric),
            BASELINE_NAMES.get(each["name"], each["name"]),
        )
        if reference is not None:
            better = (value > reference) == run.summary["metrics"][metric]["higher_is_better"]
            word = "as good as" if value == reference else "better than" if better else "worse than"
            by = "" if value == reference else f"{abs(value - reference):.4f} "
            parts.append(f"{by}{word} {name} ({reference:.4f})")
    constant = run.summary["verdict"].get("against_constant")
    if constant and constant.get("chance") and 0 < constant["chance"] < 1:
        parts.append(f"reached by {constant['chance']:.1%} of random orders of the predictions")
    return f"{metric} is {value:.4f}{': ' if parts else ''}{', '.join(parts)}."


def _tiles(run: PageRun) -> Tiles:
    tiles = []
    for name, metric in run.summary["metrics"].items():
        value = metric["value"]
        text = "undefined" if value is None else f"{value:,.4f}"
        tiles.append(Tile(name.replace("_", " "), text, *_change(name, metric, run.blessed)))
    split = run.summary["judged_split"]
    if (rows := run.summary["rows"].get(split)) is not None:
        tiles.append(Tile("evaluated rows", f"{rows:,}", f"split {split}"))
    return Tiles(tiles)


def _change(name: str, metric: JsonObject, blessed: RunRecord | None) -> tuple[str, State]:
    """Return how a metric differs from the last blessed model's, and whether that is good."""
    if blessed is None:
        return "no blessed model before", ""
    before = (blessed.summary["metrics"].get(name) or {}).get("value")
    if before is None or metric["value"] is None:
        return "undefined before", ""
    change = metric["value"] - before
    if change == 0:
        return "as the last blessed model", ""
    better = (change > 0) == metric["higher_is_better"]
    return f"{change:+.4g} since the last blessed model", "good" if better else "warning"


def why(run: PageRun) -> Section:
    """Return the importance of the columns: attributions, or else by shuffling each column."""
    summary = run.result.attributions
    if summary is not None:
        sizes, unit = dict(summary.strongest()), "mean |attribution|"
        table = attributions_table(summary)
        text = (
            f"Integrated gradients on {summary.rows:,} rows of the {summary.split} split, "
            f"{summary.steps} steps; the mean prediction is {summary.mean_prediction:.4g}."
        )
    else:
        measured = importances_of(run.result)
        if isinstance(measured, str):
            text = f"The importance of the columns is not known. {measured}"
            return Section("why", "Why?", [Text(text, "quiet")])
        sizes, unit = measured.sizes, "mean change of the prediction"
        rows = [Row([Cell(name), number_cell(size)]) for name, size in sizes.items()]
        table = Table("All columns", [Column("column"), Column(unit, True)], rows, "columns")
        of = "" if len(sizes) == measured.columns else f" of the first {len(sizes):,} columns"
        text = (
            f"Importance{of}: how far the prediction changes if a column has the value of another "
            f"row, on {measured.rows:,} evaluated rows. For gradients, add explain: {{}} to the "
            "configuration."
        )
    shown = list(sizes)[:10]
    data = {"y": shown, "x": rounded(sizes[name] for name in shown)}
    chart = Chart("Strongest columns", charts.bars(unit), data, text)
    return Section("why", "Why?", [chart, Text(text, "quiet"), Group("All columns", [table])])


def can_i_trust_it(run: PageRun) -> Section:
    """Return the warnings of the run."""
    warnings = [str(RunWarning(**each)) for each in run.summary.get("warnings", ())]
    block = Items(warnings, "warning") if warnings else Text("No warning.", "good")
    return Section("trust", "Can I trust it?", [block])
