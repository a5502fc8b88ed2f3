"""How the training went: loss and metrics by epoch, from its last checkpoint; trials of the Tuner.

TensorBoard shows the curves by step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.graph.node_names import NodeName
from pipeline.page import charts
from pipeline.page.elements import (
    Beside,
    Block,
    Chart,
    PageRun,
    Section,
    Text,
    Tile,
    Tiles,
    rounded,
)
from pipeline.report.summary import trials_table

_EVAL = "val_"
"""Prefix of the metrics of the eval split, as in Keras."""

_ENDS: Mapping[str, str] = {
    "epochs": "last epoch",
    "steps": "last step",
    "early_stopping": "early stopping",
}


@dataclass(frozen=True)
class TrainingHistory:
    """A training up to its last checkpoint.

    Attributes:
        logs: Metric -> its value after each epoch; metrics of the eval split begin with `val_`.
        steps: Optimizer steps.
        epochs: Epochs that began.
        kept: The epoch, from 0, whose weights the model has; None if unknown.
        stopped: Why it ended, such as `epochs`; "" if it did not end.
        skipped: Reason -> number of steps that updated nothing.
    """

    logs: Mapping[str, Sequence[float]]
    steps: int | None = None
    epochs: int | None = None
    kept: int | None = None
    stopped: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)


def history_of(checkpoints: Path) -> TrainingHistory | None:
    """Return the history in the newest checkpoint of the Trainer's folder; None if it has none."""
    # TensorFlow names the latest checkpoint of a folder in the file `checkpoint`.
    states = sorted(checkpoints.glob("*/checkpoint"), key=lambda file: file.stat().st_mtime)
    if not states:
        return None
    import tensorflow as tf

    latest = tf.train.latest_checkpoint(str(states[-1].parent))
    reader = None if latest is None else tf.train.load_checkpoint(latest)
    if reader is None or not reader.has_tensor("position"):
        return None
    position = json.loads(reader.get_tensor("position"))
    logs, metrics = position.get("history") or {}, position.get("metrics") or {}
    wanted = {f"{_EVAL}{name}": each for name, each in metrics.items() if f"{_EVAL}{name}" in logs}
    ended = min((len(logs[name]) for name in wanted), default=0)
    matching = [i for i in range(ended) if all(logs[n][i] == v for n, v in wanted.items())]
    return TrainingHistory(
        logs=logs,
        steps=position.get("steps"),
        epochs=position.get("epoch", 0) + bool(position.get("step_in_epoch")),
        # The last epoch with the training's metrics: its best one if that was restored.
        kept=matching[-1] if matching else None,
        stopped=position.get("stopped") or "",
        skipped=position.get("skipped") or {},
    )


def section_of(run: PageRun) -> Section:
    """Return the section: tiles, loss and metrics by epoch, trials."""
    folder = run.result.folder(NodeName.TRAINER, "model_run")
    if folder is None:
        blocks: list[Block] = [Text("This run has no output of a Trainer.", "quiet")]
    else:
        checkpoints = run.result.config.training.checkpoint_dir or folder / "checkpoints"
        history = history_of(Path(checkpoints))
        if history is None:
            blocks = [Text("The Trainer left no checkpoint: its epochs are not known.", "quiet")]
        elif not history.logs:
            blocks = [Tiles(_tiles(history)), Text("No epoch has ended.", "quiet")]
        else:
            names = dict.fromkeys(key.removeprefix(_EVAL) for key in history.logs)
            charts_of_names = Beside([_chart(name, history) for name in names])
            blocks = [Tiles(_tiles(history)), charts_of_names]
    if run.result.config.tuning and run.result.uri(NodeName.TUNER, "tuner_results") is not None:
        none = Text("No trial of the Tuner reached a score.", "warning")
        blocks.append(trials_table(run.result) if run.result.trials else none)
    return Section("training", "Training", blocks)


def _tiles(history: TrainingHistory) -> list[Tile]:
    tiles: list[Tile] = []
    if history.steps is not None:
        tiles.append(Tile("optimizer steps", f"{history.steps:,}", f"{history.epochs} epochs"))
    if history.stopped:
        tiles.append(Tile("ended by", _ENDS.get(history.stopped, history.stopped)))
    if history.kept is not None:
        tiles.append(Tile("kept epoch", f"{history.kept + 1:,}", "whose weights the model has"))
    if skipped := {reason: count for reason, count in history.skipped.items() if count}:
        note = ", ".join(f"{reason.replace('_', ' ')}: {n:,}" for reason, n in skipped.items())
        tiles.append(Tile("skipped steps", f"{sum(skipped.values()):,}", note, "warning"))
    return tiles


def _chart(name: str, history: TrainingHistory) -> Chart:
    series = {
        split: history.logs[key]
        for split, key in (("train", name), ("eval", f"{_EVAL}{name}"))
        if key in history.logs
    }
    columns: dict[str, list] = {"x": [], "y": [], "series": []}
    for split, values in series.items():
        columns["x"] += range(1, len(values) + 1)
        columns["y"] += rounded(values)
        columns["series"] += [split] * len(values)
    several = len(series) > 1
    if not several:
        del columns["series"]
    kept = None if history.kept is None else history.kept + 1
    spec = charts.lines("epoch", _name(name), series="split" if several else None, kept=kept)
    texts = [f"{split}: {v[0]:.4g} to {v[-1]:.4g}" for split, v in series.items()]
    if kept is not None:
        texts.append(f"the line marks the kept epoch {kept:,}")
    where = "" if several else f" on the {next(iter(series))} split"
    title = f"{_name(name)} by epoch{where}"
    return Chart(f"{title[0].upper()}{title[1:]}", spec, columns, "; ".join(texts))


def _name(name: str) -> str:
    return "AUC" if name == "auc" else name.replace("_", " ")
