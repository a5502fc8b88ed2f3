"""Is the model blessed, why, and how good is it beside the blessed model and the baselines?"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.common.json_types import JsonObject
from pipeline.page.elements import (
    Block,
    Cell,
    Column,
    Items,
    Row,
    Section,
    State,
    Table,
    Text,
    Tile,
    Tiles,
    number_cell,
)
from pipeline.page.inputs import RunInputs
from pipeline.report.run_record import RunRecord
from shared_core.run_warning import RunWarning, count_warnings


def section_of(run: RunInputs) -> Section:
    """Return the section; of a run that failed, the node and the error."""
    summary = run.summary
    blocks: list[Block] = []
    error = summary["run"].get("error")
    if error:
        failed = summary["run"]["result"] == "failed"
        where = f"{error['node']} failed: " if failed and error["node"] else ""
        blocks.append(Text(f"{where}{error['message']}", "bad" if failed else "warning"))
    verdict = summary["verdict"]
    warnings = [str(RunWarning(**each)) for each in summary.get("warnings", ())]
    if verdict["reasons"]:
        blocks.append(Items([f"{verdict['result']}: {each}" for each in verdict["reasons"]], "bad"))
    elif verdict["result"] == "blessed":
        pushed = summary["pushed_model"]
        text = "Every threshold holds"
        text += f", with {count_warnings(len(warnings))}." if warnings else "."
        text += f" The model is in {pushed}." if pushed else ""
        blocks.append(Text(text, "warning" if warnings else "good"))
    elif not error:
        blocks.append(Text("No node of this run judged a model.", "quiet"))
    if warnings:
        blocks.append(Items(warnings, "warning"))
    if summary["slices"]:  # a model was evaluated
        blocks += [_tiles(run), _thresholds(summary), _baselines(run)]
    return Section("verdict", "Verdict", [each for each in blocks if each is not None])


def _tiles(run: RunInputs) -> Tiles:
    tiles = []
    for name, metric in run.summary["metrics"].items():
        value = metric["value"]
        note, state = _change(name, metric, run.blessed)
        tiles.append(Tile(name.replace("_", " "), text_of(value), note, state))
    rows = run.summary["rows"].get(run.summary["judged_split"])
    if rows is not None:
        tiles.append(Tile("evaluated rows", f"{rows:,}", f"split {run.summary['judged_split']}"))
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


def _thresholds(summary: JsonObject) -> Table | None:
    rows = []
    for name, bounds in summary["thresholds"].items():
        value = summary["metrics"].get(name, {}).get("value")
        needed = [
            f"{sign} {bounds[key]:g}"
            for key, sign in (("lower_bound", "≥"), ("upper_bound", "≤"))
            if bounds.get(key) is not None
        ]
        if bounds.get("max_loss") is not None:
            needed.append(f"at most {bounds['max_loss']:g} worse than the blessed model")
        rows.append(Row([Cell(name), number_cell(value), Cell(", ".join(needed))]))
    columns = [Column("metric"), Column("value", is_number=True), Column("needed on all rows")]
    return Table("Thresholds", columns, rows) if rows else None


def _baselines(run: RunInputs) -> Table | None:
    summary = run.summary
    if not summary["baselines"]:
        return None
    names = list(summary["metrics"])
    columns = [Column("model"), *(Column(name, is_number=True) for name in names)]
    own = {name: metric["value"] for name, metric in summary["metrics"].items()}
    models: list[tuple[str, Mapping[str, float | None]]] = [("this model", own)]
    if run.blessed is not None:
        of_blessed = {
            name: metric["value"] for name, metric in run.blessed.summary["metrics"].items()
        }
        models.append((f"last blessed model ({run.blessed.name})", of_blessed))
    models += [(each["description"], each["metrics"]) for each in summary["baselines"]]
    rows = [
        Row([Cell(model), *(number_cell(values.get(name)) for name in names)])
        for model, values in models
    ]
    return Table("Beside the baselines", columns, rows)


def text_of(value: float | None) -> str:
    """Return a metric with four decimals, as the terminal prints it."""
    return "undefined" if value is None else f"{value:,.4f}"
