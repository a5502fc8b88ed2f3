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
    Chart,
    Group,
    PageRun,
    Section,
    Text,
    Tile,
    Tiles,
    rounded,
)
from pipeline.report.result import RunResult
from pipeline.report.summary import trials_table
from pipeline.report.tables import Cell, Column, Row, Table, number_cell
from pipeline.report.training_log import EVAL, Curve, TrainingHistory, curves_of, history_of, thin

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


def section_of(run: PageRun) -> Section:
    """Return the section: tiles, loss and metrics by epoch, curves by step, trials."""
    folder = run.result.folder(NodeName.TRAINER, "model_run")
    if folder is None:
        blocks: list[Block] = [Text("This run has no output of a Trainer.", "quiet")]
    else:
        checkpoints = run.result.config.training.checkpoint_dir or folder / "checkpoints"
        history, curves = history_of(Path(checkpoints)), curves_of(folder)
        blocks = [*_tiles(history, curves), *_epochs(history, curves), *_steps(curves)]
    return Section("training", "Training", [*blocks, *_trials(run.result)])


def _tiles(history: TrainingHistory | None, curves: Sequence[Curve]) -> list[Block]:
    tiles: list[Tile] = []
    texts: list[Block] = []
    loss = _find(curves, "train", "loss")
    if history is not None:
        if history.steps is not None:
            tiles.append(Tile("optimizer steps", f"{history.steps:,}", f"{history.epochs} epochs"))
        if history.stopped:
            tiles.append(Tile("ended by", _ENDS.get(history.stopped, history.stopped)))
        if history.kept is not None:
            tiles.append(Tile("kept epoch", f"{history.kept + 1:,}", "whose weights the model has"))
        if skipped := {reason: count for reason, count in history.skipped.items() if count}:
            note = ", ".join(f"{reason.replace('_', ' ')}: {n:,}" for reason, n in skipped.items())
            tiles.append(Tile("skipped steps", f"{sum(skipped.values()):,}", note, "warning"))
    elif loss is not None:
        tiles.append(Tile("optimizer steps", f"{loss.steps[-1]:,}"))
    speed = _find(curves, "train", "examples_per_second")
    if speed is not None and len(speed.values) > 1:
        # The first call also traces the graph.
        median = float(np.nanmedian(speed.values[1:]))
        tiles.append(Tile("examples per second", f"{median:,.0f}", "median of the points"))
    if loss is not None:
        if loss.resumed:
            steps = ", ".join(f"{step:,}" for step in loss.resumed)
            text = f"Training was resumed from a checkpoint; the first step after each: {steps}."
            texts.append(Text(text))
        if undefined := sum(not math.isfinite(value) for value in loss.values):
            texts.append(Text(f"The training loss is not finite at {undefined} points.", "bad"))
    rate = _find(curves, "train", "learning_rate")
    if rate is not None and _is_constant(rate):
        tiles.append(Tile("learning rate", f"{rate.values[0]:.4g}", "constant"))
    return [*([Tiles(tiles)] if tiles else []), *texts]


def _epochs(history: TrainingHistory | None, curves: Sequence[Curve]) -> list[Block]:
    """Return charts of the loss and of each metric by epoch, and a table of them."""
    logs = history.logs if history is not None else {}
    if history is None or not logs:
        if not curves:
            return [Text("The Trainer wrote no curves and left no checkpoint.", "quiet")]
        text = "No checkpoint has the metrics of each epoch; the curves by step are below."
        return [Text(text, "quiet")]
    blocks: list[Block] = []
    for name in dict.fromkeys(key.removeprefix(EVAL) for key in logs):
        series = {
            split: Curve(split, name, range(1, len(logs[key]) + 1), logs[key])
            for split, key in (("train", name), ("eval", f"{EVAL}{name}"))
            if key in logs
        }
        where = "" if len(series) > 1 else f" on the {next(iter(series))} split"
        title = f"{_name(name)} by epoch{where}"
        kept = None if history.kept is None else history.kept + 1
        blocks.append(
            _line_chart(f"{title[0].upper()}{title[1:]}", _name(name), series, "epoch", kept)
        )
    return [Beside(blocks), _epoch_table(logs, history.kept)]


def _epoch_table(logs: Mapping[str, Sequence[float]], kept: int | None) -> Block:
    epochs = max(len(values) for values in logs.values())
    first = max(0, epochs - _MOST_EPOCHS)
    headings = [
        f"{'eval' if name.startswith(EVAL) else 'train'} {_name(name.removeprefix(EVAL))}"
        for name in logs
    ]
    rows = [
        Row(
            [
                Cell(f"{epoch + 1}{' (kept)' if epoch == kept else ''}", value=epoch + 1),
                *(number_cell(v[epoch] if epoch < len(v) else None) for v in logs.values()),
            ]
        )
        for epoch in range(first, epochs)
    ]
    columns = [Column("epoch", True), *(Column(heading, True) for heading in headings)]
    title = f"The last {_MOST_EPOCHS:,} of {epochs:,} epochs" if first else "All epochs"
    return Group(title, [Table("Loss and metrics by epoch", columns, rows)])


def _steps(curves: Sequence[Curve]) -> list[Block]:
    """Return the curves by step: those of `_TITLES`, then weights of tasks."""
    blocks: list[Block] = []
    for name, (title, unit) in _TITLES.items():
        splits = ("train", "eval") if name == "loss" else ("train",)
        series = {split: each for split in splits if (each := _find(curves, split, name))}
        # A constant learning rate is a tile.
        if series and not (name == "learning_rate" and _is_constant(series["train"])):
            blocks.append(_line_chart(title, unit, series, "step"))
    weights = {
        each.name.partition("/")[2]: each for each in curves if each.name.startswith("task_weight/")
    }
    if weights:
        blocks.append(_line_chart("Weights of the tasks", "weight", weights, "step"))
    return [Group("Curves by step", [Beside(blocks)])] if blocks else []


def _line_chart(
    title: str, y: str, series: Mapping[str, Curve], x: str, kept: int | None = None
) -> Chart:
    columns: dict[str, list] = {"x": [], "y": [], "series": []}
    for name, curve in series.items():
        steps, values = thin(curve.steps, curve.values)
        columns["x"] += steps
        columns["y"] += rounded(values)
        columns["series"] += [name] * len(steps)
    several = len(series) > 1
    if not several:
        del columns["series"]
    points = max(len(curve.steps) for curve in series.values()) <= 30
    spec = charts.lines(x, y, series="split" if several else None, points=points, kept=kept)
    ends = [
        f"{name + ': ' if name else ''}{curve.values[0]:.4g} at {x} {curve.steps[0]:,}, "
        f"{curve.values[-1]:.4g} at {x} {curve.steps[-1]:,}"
        for name, curve in series.items()
    ]
    if kept is not None:
        ends.append(f"the line marks the kept {x} {kept:,}")
    return Chart(title, spec, columns, "; ".join(ends))


def _trials(run: RunResult) -> list[Block]:
    if run.config.tuning is None or run.uri(NodeName.TUNER, "tuner_results") is None:
        return []
    if not run.trials:
        return [Text("No trial of the Tuner reached a score.", "warning")]
    return [trials_table(run)]


def _is_constant(curve: Curve) -> bool:
    return min(curve.values) == max(curve.values)


def _find(curves: Sequence[Curve], split: str, name: str) -> Curve | None:
    return next((each for each in curves if (each.split, each.name) == (split, name)), None)


def _name(name: str) -> str:
    return "AUC" if name == "auc" else name.replace("_", " ")
