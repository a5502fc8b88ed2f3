"""The state of a run, as log records tell it, and how it looks."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from pipeline.engines.beam_errors import own_words
from pipeline.report.console import view
from pipeline.report.progress import ProgressHandler, RunState, duration

NODES = ["CsvExampleGen", "StatisticsGen", "Transform", "Trainer", "Evaluator"]


def log(logger: logging.Logger, message: str, *args: object) -> None:
    logger.info(message, *args)


@pytest.fixture
def watched():
    state = RunState.of(NODES)
    logger = logging.Logger("test")
    logger.addHandler(ProgressHandler(state, row_counts=lambda: {"train": 70, "eval": 30}))
    return state, logger


def run_all(logger: logging.Logger) -> None:
    for name in NODES:
        log(logger, "Component %s is running.", name)
        if name == "Transform":
            log(logger, "A cached execution %d is used.", 7)
        if name == "Trainer":
            record = {"event": "train", "step": 5, "total_steps": 50, "loss": 0.25,
                      "examples_per_second": 1234.0, "eta_seconds": 61.0}  # fmt: skip
            logger.info("step", extra={"progress": record})
            logger.info(
                "eval", extra={"progress": {"event": "eval", "epoch": 1, "metrics": {"auc": 0.9}}}
            )
            logger.info(
                "end",
                extra={
                    "progress": {
                        "event": "fit_end",
                        "stopped": "epochs",
                        "steps": 50,
                        "skipped": {"empty": 2},
                    }
                },
            )
        log(logger, "Component %s is finished.", name)


def test_what_is_being_measured_is_shown(watched):
    state, logger = watched
    log(logger, "Component %s is running.", "Trainer")
    logger.info("measuring", extra={"progress": {"event": "memory_probe", "rows": 2048}})
    assert state.node("Trainer").text == "measuring the memory of micro-batches of 2,048 rows"


def test_states_follow_the_runners_log(watched):
    state, logger = watched
    run_all(logger)
    assert [node.status for node in state.nodes] == ["done", "done", "cached", "done", "done"]
    assert [node.rows for node in state.nodes] == [100, 100, 100, None, 30]
    assert state.nodes[3].detail == "50 steps, stopped by epochs, 2 steps skipped"


def test_the_running_node_is_the_one_that_failed(watched):
    state, logger = watched
    log(logger, "Component %s is running.", "Transform")
    failed = state.stop("failed")
    assert failed is state.node("Transform")
    assert state.stop("failed") is None


def test_plain_lines(watched):
    state, logger = watched
    out = io.StringIO()
    with view(state, Console(file=out, width=200), plain=False):
        run_all(logger)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("[1/5] CsvExampleGen: done in ")
    assert "100 rows" in lines[1]
    assert "[4/5] Trainer: step 5/50, loss 0.2500, 1,234 examples/s, 1 min 01 s left" in lines
    assert "[4/5] Trainer: epoch 1: eval auc 0.9000" in lines


def test_trials_of_a_search(watched):
    """Steps and scores are told; the epochs of a trial are not: its end is what counts."""
    state, logger = watched
    of = {"trial": 2, "trials": 8}
    out = io.StringIO()
    with view(state, Console(file=out, width=200), plain=False):
        log(logger, "Component %s is running.", "Trainer")
        for record in (
            {"event": "train", "step": 5, "total_steps": 50, "loss": 0.25, **of},
            {"event": "eval", "epoch": 1, "metrics": {"auc": 0.7}, **of},
            {"event": "fit_end", "steps": 50, "stopped": "epochs", **of},
            {
                "event": "trial",
                "objective": "auc",
                "score": 0.7,
                "best": 0.9,
                "best_trial": 1,
                **of,
            },
            {"event": "trial", "failed": "the loss is NaN", **of, "trial": 3, "trials": None},
        ):
            logger.info("...", extra={"progress": record})
        log(logger, "Component %s is finished.", "Trainer")
    assert out.getvalue().splitlines()[:3] == [
        "[4/5] Trainer: trial 2/8, step 5/50, loss 0.2500",
        "[4/5] Trainer: trial 2/8: auc 0.7000, best 0.9000 of trial 1",
        "[4/5] Trainer: trial 3 failed",
    ]


def test_live_table(watched):
    state, logger = watched
    out = io.StringIO()
    with view(state, Console(file=out, width=120, force_terminal=True), plain=False):
        run_all(logger)
    text = out.getvalue()
    for name in NODES:
        assert name in text
    assert "✓" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (3725, "1 h 02 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_own_words_of_a_plain_error():
    assert own_words(ValueError("column 'x' is constant")) == "ValueError: column 'x' is constant"


def test_own_words_inside_a_beam_message():
    text = (
        "Traceback (most recent call last):\n"
        '  File "apache_beam/runners/common.py", line 1, in process\n'
        "    return self.do_fn_invoker.invoke_process(windowed_value)\n"
        '  File "x.py", line 3, in f\n'
        "    raise ValueError(1)\n"
        "ValueError: column 'fare': 3 values in row 7\nuse one value per row"
        " [while running 'Analyze/Map']\n"
    )
    assert own_words(RuntimeError(text)) == (
        "ValueError: column 'fare': 3 values in row 7\nuse one value per row"
    )
