"""The results of hyperparameter tuning: one line per trial, best first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pipeline.common.json_types import JsonObject
from trainer_module import TunerConfig

_MOST_ROWS = 10
# The file to which TFX's Tuner writes the trials that reached a score, best first.
_RESULTS = "tuner_results.json"
# KerasTuner's key for the epochs of a Hyperband trial.
_EPOCHS = "tuner/epochs"


def table(tuning: TunerConfig, uri: str) -> Table:
    """Return a table of the trials with their scores and hyperparameter values.

    Args:
        tuning: The settings of the tuning.
        uri: Folder of the Tuner's output `tuner_results`.
    """
    trials = results_of(uri)
    columns = columns_of(tuning, trials)
    result = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("trial", tuning.objective, *columns):
        result.add_column(heading.removeprefix("tuner/"), justify="right", no_wrap=True)
    for trial in trials[:_MOST_ROWS]:
        result.add_row(
            str(int(trial["trial_id"]) + 1),
            f"{trial['score']:.4f}",
            *(Text(value_text(trial[column])) for column in columns),
            style="bold" if trial is trials[0] else "",
        )
    if len(trials) > _MOST_ROWS:
        result.add_row(Text(f"and {len(trials) - _MOST_ROWS} more", style="dim"))
    return result


def results_of(uri: str) -> list[JsonObject]:
    """Return the trials that reached a score, best first: `trial_id`, `score`, values by setting.

    Args:
        uri: Folder of the Tuner's output `tuner_results`.
    """
    return json.loads((Path(uri) / _RESULTS).read_text(encoding="utf-8"))


def columns_of(tuning: TunerConfig, trials: Sequence[JsonObject]) -> list[str]:
    """Return the settings that the trials differ in."""
    return [*tuning.search, *([_EPOCHS] if any(_EPOCHS in trial for trial in trials) else [])]


def value_text(value: object) -> str:
    """Return the value of a setting, a number with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
