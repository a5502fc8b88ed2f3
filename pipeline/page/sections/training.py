"""How the training went: loss and metrics by epoch, curves by step, trials of the Tuner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.graph.node_names import NodeName
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
    Tile,
    Tiles,
    number_cell,
)
from pipeline.page.finite import rounded
from pipeline.page.inputs import RunInputs
from pipeline.report import trials
from pipeline.report.curves import Curve, curves_of, last_finite, thin
from pipeline.report.training_history import EVAL, TrainingHistory, history_of

_TITLES: Mapping[str, tuple[str, str]] = {
    "loss": ("Loss by step", "loss"),
    "learning_rate": ("Learning rate", "learning rate"),
    "gradient_norm": ("Gradient norm", "global norm"),
    "gradient_noise_scale": ("Gradient noise scale", "rows"),
    "examples_per_second": ("Speed", "examples per second"),
}
"""Scalar of the training -> title of its chart, and of its vertical axis."""

_ENDS: Mapping[str, str] = {
    "epochs": "last epoch",
    "steps": "last step",
    "early_stopping": "early stopping",
}

_MOST_EPOCHS = 1_000


def section_of(run: RunInputs) -> Section:
    """Return the section: tiles, loss and metrics by epoch, curves by step, trials."""
    folder = run.artifact(NodeName.TRAINER, "model_run")
    if folder is None:
        blocks: list[Block] = [Text("This run has no output of a Trainer.", "quiet")]
    else:
        history = history_of(Path(run.config.training.checkpoint_dir or folder / "checkpoints"))
        curves = curves_of(folder, points=None)
        blocks = [*_summary(run, history, curves), *_epochs(history, curves), *_steps(curves)]
    return Section("training", "Training", [*blocks, *_trials(run)])


def _summary(
    run: RunInputs,
    history: TrainingHistory | None,
    curves: Sequence[Curve],
) -> list[Block]:
    tiles: list[Tile] = []
    texts: list[Block] = []
    loss = _find(curves, "train", "loss")
    if history is not None:
        if history.steps is not None:
            tiles.append(Tile("optimizer steps", f"{history.steps:,}", f"{history.epochs} epochs"))
        if history.stopped:
            tiles.append(Tile("ended by", _ENDS.get(history.stopped, history.stopped)))
        skipped = {reason: count for reason, count in history.skipped.items() if count}
        note = ", ".join(f"{reason.replace('_', ' ')}: {n:,}" for reason, n in skipped.items())
        state = "warning" if skipped else ""
        tiles.append(Tile("skipped steps", f"{sum(skipped.values()):,}", note, state))
    elif loss is not None:
        tiles.append(Tile("optimizer steps", f"{loss.steps[-1]:,}"))
    speed = _find(curves, "train", "examples_per_second")
    if speed is not None and len(speed.values) > 1:
        # The first call also traces the graph.
        median = float(np.nanmedian(speed.values[1:]))
        tiles.append(Tile("examples per second", f"{median:,.0f}", "median of the points"))
    if loss is not None:
        tiles.append(Tile("restarts", str(len(loss.resumed))))
        if loss.resumed:
            steps = ", ".join(f"{step:,}" for step in loss.resumed)
            text = f"Training was resumed from a checkpoint; the first step after each: {steps}."
            texts.append(Text(text))
        undefined = sum(not math.isfinite(value) for value in loss.values)
        if undefined:
            texts.append(Text(f"The training loss is not finite at {undefined} points.", "bad"))
    noise = _find(curves, "train", "gradient_noise_scale")
    if noise is not None and (last := last_finite(noise.values)) is not None:
        # The summary has the batch only if the Trainer was not cached.
        batch = (run.summary["gradient_noise_scale"] or {}).get("global_batch_rows")
        note = "" if batch is None else f"global batch {batch:,.0f} rows"
        tiles.append(Tile("gradient noise scale", f"{last:,.0f} rows", note))
    rate = _find(curves, "train", "learning_rate")
    if rate is not None and _is_constant(rate):
        tiles.append(Tile("learning rate", f"{rate.values[0]:.4g}", "constant"))
    return [*([Tiles(tiles)] if tiles else []), *texts]


def _epochs(history: TrainingHistory | None, curves: Sequence[Curve]) -> list[Block]:
    """Return charts of the loss and of each metric by epoch, and the table of both."""
    logs = {} if history is None else history.logs
    logs = {name: values for name, values in logs.items() if len(values)}
    if not logs:
        evaluated = [each for each in curves if each.split == "eval" and each.name != "loss"]
        shown = [
            _line_chart(
                f"{_name(each.name)} on the eval split", _name(each.name), {"": each}, "step"
            )
            for each in evaluated
        ]
        text = "No checkpoint of this training is left, so its curves are shown by step."
        return [Text(text, "quiet"), *_beside(shown)] if curves else [Text(_NOTHING, "quiet")]
    found: list[Block] = []
    for name in dict.fromkeys(name.removeprefix(EVAL) for name in logs):
        both = {"train": logs.get(name), "eval": logs.get(EVAL + name)}
        series = {
            split: Curve(split, name, range(1, len(values) + 1), values)
            for split, values in both.items()
            if values is not None
        }
        where = "" if len(series) > 1 else f", {next(iter(series))} split"
        title = f"{_name(name)} by epoch{where}"
        found.append(_line_chart(f"{title[0].upper()}{title[1:]}", _name(name), series, "epoch"))
    return [*_beside(found), _epoch_table(logs)]


_NOTHING = "The Trainer wrote no curves and left no checkpoint."


def _epoch_table(logs: Mapping[str, Sequence[float]]) -> Block:
    names = list(logs)
    epochs = max(len(values) for values in logs.values())
    first = max(0, epochs - _MOST_EPOCHS)
    headings = [
        f"eval {_name(name.removeprefix(EVAL))}"
        if name.startswith(EVAL)
        else f"train {_name(name)}"
        for name in names
    ]
    rows = [
        Row(
            [
                Cell(str(epoch + 1), value=epoch + 1),
                *(number_cell(logs[n][epoch] if epoch < len(logs[n]) else None) for n in names),
            ]
        )
        for epoch in range(first, epochs)
    ]
    columns = [Column("epoch", True), *(Column(heading, True) for heading in headings)]
    title = f"The last {_MOST_EPOCHS:,} of {epochs:,} epochs" if first else "All epochs"
    return Group(title, [Table("Loss and metrics by epoch", columns, rows)])


def _steps(curves: Sequence[Curve]) -> list[Block]:
    """Return the curves by step: those of `_TITLES`, then weights of tasks."""
    found: list[Block] = []
    for name, (title, unit) in _TITLES.items():
        splits = ("train", "eval") if name == "loss" else ("train",)
        series = {split: each for split in splits if (each := _find(curves, split, name))}
        # A constant learning rate is a tile.
        if series and not (name == "learning_rate" and _is_constant(series["train"])):
            found.append(_line_chart(title, unit, series, "step"))
    weights = {
        each.name.partition("/")[2]: each for each in curves if each.name.startswith("task_weight/")
    }
    if weights:
        found.append(_line_chart("Weights of the tasks", "weight", weights, "step"))
    return [Group("Curves by step", _beside(found), is_open=True)] if found else []


def _line_chart(title: str, y: str, series: Mapping[str, Curve], x: str) -> Chart:
    columns: dict[str, list] = {"x": [], "y": [], "series": []}
    for name, curve in series.items():
        steps, values = thin(curve.steps, curve.values)
        columns["x"] += steps
        columns["y"] += [rounded(value) for value in values]
        columns["series"] += [name] * len(steps)
    several = len(series) > 1
    if not several:
        del columns["series"]
    points = max(len(curve.steps) for curve in series.values()) <= 30
    spec = charts.lines(x, y, series="split" if several else None, points=points)
    ends = [
        f"{name + ': ' if name else ''}{curve.values[0]:.4g} at {x} {curve.steps[0]:,}, "
        f"{curve.values[-1]:.4g} at {x} {curve.steps[-1]:,}"
        for name, curve in series.items()
    ]
    return Chart(title, spec, columns, "; ".join(ends))


def _trials(run: RunInputs) -> list[Block]:
    folder = run.artifact(NodeName.TUNER, "tuner_results")
    tuning = run.config.tuning
    if folder is None or tuning is None:
        return []
    found = trials.results_of(str(folder))
    if not found:
        return [Text("No trial of the Tuner reached a score.", "warning")]
    settings = trials.columns_of(tuning, found)
    rows = [
        Row(
            [
                Cell(str(int(each["trial_id"]) + 1), value=int(each["trial_id"]) + 1),
                number_cell(each["score"]),
                *(_setting(each.get(name)) for name in settings),
            ]
        )
        for each in found
    ]
    columns = [
        Column("trial", True),
        Column(tuning.objective, True),
        *(Column(name.removeprefix("tuner/")) for name in settings),
    ]
    return [Table("Trials of the Tuner, best first", columns, rows, filter="trials")]


def _setting(value: object) -> Cell:
    number = float(value) if isinstance(value, (int, float)) else None
    return Cell(trials.value_text(value), value=number)


def _is_constant(curve: Curve) -> bool:
    return min(curve.values) == max(curve.values)


def _find(curves: Sequence[Curve], split: str, name: str) -> Curve | None:
    return next((each for each in curves if (each.split, each.name) == (split, name)), None)


def _name(name: str) -> str:
    return "AUC" if name == "auc" else name.replace("_", " ")


def _beside(blocks: Sequence[Block]) -> list[Block]:
    return [Beside(blocks)] if blocks else []
