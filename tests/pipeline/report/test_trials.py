"""The table of trials in the summary, from what TFX's Tuner writes."""

from __future__ import annotations

import io
import json

from rich.console import Console

from pipeline.report.trials import table
from trainer_module import TunerConfig

TUNING = TunerConfig.parse(
    {
        "search": {
            "optimizer.learning_rate": {"min": 1e-4, "max": 0.1},
            "model.hidden_units": {"values": [[8], [16, 8]]},
        },
        "objective": "auc",
    }
)


def lines(folder, trials):
    (folder / "tuner_results.json").write_text(json.dumps(trials))
    out = io.StringIO()
    Console(file=out, width=200).print(table(TUNING, str(folder)))
    return [line.split("  ") for line in out.getvalue().splitlines()]


def trial(number, score, **more):
    values = {"optimizer.learning_rate": 0.0123456, "model.hidden_units": "[16, 8]", **more}
    return {"trial_id": f"{number:02}", "score": score, **values}


def cells(row):
    return [cell.strip() for cell in row if cell.strip()]


def test_the_best_comes_first_with_its_values(tmp_path):
    heading, best, second = lines(tmp_path, [trial(3, 0.91), trial(0, 0.9)])
    assert cells(heading) == ["trial", "auc", "optimizer.learning_rate", "model.hidden_units"]
    assert cells(best) == ["4", "0.9100", "0.01235", "[16, 8]"]
    assert cells(second)[0] == "1"


def test_ten_trials_are_shown_and_the_rest_counted(tmp_path):
    found = lines(tmp_path, [trial(i, 0.9) for i in range(13)])
    assert len(found) == 12
    assert cells(found[-1]) == ["and 3 more"]


def test_the_epochs_of_hyperband_have_a_column(tmp_path):
    found = lines(tmp_path, [trial(0, 0.9, **{"tuner/epochs": 9, "tuner/bracket": 2})])
    assert cells(found[0])[-1] == "epochs"
    assert cells(found[1])[-1] == "9"
