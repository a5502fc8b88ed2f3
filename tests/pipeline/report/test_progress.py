"""The state of a run, read from log records, and how it is displayed."""

from __future__ import annotations

import ast
import importlib.util
import io
import logging
import pickle
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from absl import logging as absl_logging
from rich.console import Console

from pipeline.engines.engine import error_message
from pipeline.report.console import ProgressLines
from pipeline.report.progress import (
    CACHED,
    NODE_ENDS,
    NODE_STARTS,
    Change,
    NodeState,
    ProgressHandler,
    RunState,
    duration,
)
from shared_core.run_warning import RunWarning
from trainer_module.common.progress import (
    EvaluationEnded,
    MemoryProbe,
    Progress,
    RowCounter,
    RowsProcessed,
    TrainingEnded,
    TrainingStep,
    TrialEnded,
    TrialFailed,
    TrialNumber,
    attached,
)
from trainer_module.loop.callback import EpochEnd, FitResult, LoopProgress
from trainer_module.loop.progress_log import ProgressLog, _batch_size_advice

NODES = ["ArrowExampleGen", "StatisticsGen", "Transform", "Trainer", "Evaluator"]


def send(logger: logging.Logger, record: Progress) -> None:
    logger.info("...", extra=attached(record))


@pytest.fixture
def watched():
    state = RunState.of(NODES)
    logger = logging.Logger("test")
    logger.addHandler(ProgressHandler(state, row_counts=lambda: {"train": 70, "eval": 30}))
    return state, logger


@contextmanager
def through_absl(state: RunState):
    """The state follows absl's logger, which the code of a run logs to."""
    logger, handler = absl_logging.get_absl_logger(), ProgressHandler(state, row_counts=dict)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_states_follow_the_runners_log(watched):
    """Of those that the installed TFX logs; each node that ends is a line."""
    state, logger = watched
    out = io.StringIO()
    with ProgressLines(state, Console(file=out, width=200)):
        for name in NODES:
            logger.info(NODE_STARTS, name)
            if name == "Transform":
                logger.info(CACHED, 7)
            if name == "Trainer":
                send(logger, EvaluationEnded(1, {"auc": 0.9}))
                send(logger, TrainingEnded("epochs", 50, {"empty": 2}, advice="use more rows"))
            logger.info(NODE_ENDS, name)
    lines = out.getvalue().splitlines()
    assert "100 rows" in lines[1]
    assert "[4/5] Trainer: epoch 1: eval auc 0.9000" in lines
    assert [node.status for node in state.nodes] == ["done", "done", "cached", "done", "done"]
    assert [node.rows for node in state.nodes] == [100, 100, 100, None, 30]
    assert state.nodes[3].detail == "50 steps, stopped by epochs, 2 steps skipped; use more rows"
    logger.info(NODE_STARTS, "Trainer")
    send(logger, MemoryProbe(2048))
    assert state.nodes[3].text == "measuring the memory of micro-batches of 2,048 rows"
    logger.info("Component %s is resting.", "Trainer")
    assert state.stop("failed") is state.nodes[3]
    assert state.stop("failed") is None


def texts_of(module: str) -> set[str]:
    """The string constants of a module's source, which is not imported."""
    package, *rest = module.split(".")
    spec: Any = importlib.util.find_spec(package)
    file = Path(spec.submodule_search_locations[0], *rest).with_suffix(".py")
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("tfx.orchestration.local.local_dag_runner", NODE_STARTS),
        ("tfx.orchestration.local.local_dag_runner", NODE_ENDS),
        ("tfx.orchestration.portable.launcher", CACHED),
        ("apache_beam.runners.portability.portable_runner", "Pipeline %s failed in state %s: %s"),
        ("apache_beam.runners.common", " [while running '%s']"),
    ],
)
def test_the_installed_release_says_it(module, text):
    assert text in texts_of(module)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as its only item."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_time_left_follows_from_the_rate_of_rows(watched, clock):
    state, logger = watched
    logger.info(NODE_STARTS, "Evaluator")
    node = state.node("Evaluator")
    node.rows = 500
    clock[0] += 8.0
    send(logger, RowsProcessed(100))
    assert node.text == "100 of 500 rows, 12 rows/s, ~32.0 s left"
    send(logger, RowsProcessed(450))
    assert node.text == "550 rows, 69 rows/s"  # more than were counted
    clock[0] += 2.0
    logger.info(NODE_ENDS, "Evaluator")
    assert node.text == "500 rows, 50 rows/s"


def test_rows_are_logged_once_a_second(watched, clock):
    """Through absl's logger, as from a Beam function in the process of the run."""
    state, _ = watched
    state.start("Transform")
    seen: list[Change] = []
    state.on_change = lambda node, change: seen.append(change)
    with through_absl(state):
        counter = pickle.loads(pickle.dumps(RowCounter()))
        for _ in range(10):
            clock[0] += 0.25
            counter.add(10)
    assert seen == [RowsProcessed(40), RowsProcessed(40)]
    assert state.node("Transform").processed == 80


def test_trials_of_a_search(watched):
    """Steps and scores are shown; the epochs of a trial are not, only its end."""
    state, logger = watched
    of = TrialNumber(2, 8)
    out = io.StringIO()
    with ProgressLines(state, Console(file=out, width=200)):
        logger.info(NODE_STARTS, "Trainer")
        for record in (
            TrainingStep(5, 50, 1, 10, 0.25, trial=of),
            EvaluationEnded(1, {"auc": 0.7}, of),
            TrainingEnded("epochs", 50, {}, of),
            TrialEnded(of, "auc", {}, score=0.7, best=0.9, best_trial=1, metrics={}),
            TrialFailed(TrialNumber(3, None), {}, "the loss is NaN"),
        ):
            send(logger, record)
        logger.info(NODE_ENDS, "Trainer")
    assert out.getvalue().splitlines()[:3] == [
        "[4/5] Trainer: trial 2/8, step 5/50, loss 0.2500",
        "[4/5] Trainer: trial 2/8: auc 0.7000, best 0.9000 of trial 1",
        "[4/5] Trainer: trial 3 failed",
    ]


def test_what_the_trainer_really_logs_is_what_the_console_reads():
    """Each record of `ProgressLog`, through absl's logger as in a run, to the text shown."""
    state = RunState.of(["Trainer"])
    state.start("Trainer")
    seen, texts = [], []

    def keep(node: NodeState, change: Change) -> None:
        seen.append(change)
        texts.append(node.text)

    state.on_change = keep
    with through_absl(state):
        action = ProgressLog(every_seconds=0.0)
        first = LoopProgress(5, 5, 50, 1, 10, 0.25, 1.0, 0.1, rows=640, seconds=9.0)
        action.on_loop(first)
        action.on_loop(first._replace(step=10, seconds=0.5))
        action.on_loop(first._replace(step=15, total_steps=None, noise_scale=512.0))
        action.on_epoch(EpochEnd(50, 1, 0.25, {"auc": 0.9}, {}))
        action.on_end(FitResult("epochs", 50, 10, {}, {"empty": 2}, {}))
    ended = "50 steps, stopped by epochs, 2 steps skipped; " + _batch_size_advice(512.0, 128.0)
    assert seen[1] == TrainingStep(10, 50, 1, 10, 0.25, examples_per_second=1280.0, eta_seconds=4.0)
    assert texts == [
        "step 5/50, loss 0.2500",
        "step 10/50, loss 0.2500, 1,280 examples/s, 4.0 s left",
        "step 15/?, loss 0.2500, 71 examples/s",
        "epoch 1: eval auc 0.9000",
        ended,
    ]
    training = state.node("Trainer").training
    assert (training.noise_scale, training.global_batch) == (512.0, 128.0)


def test_cautions_of_transform_are_shown_when_it_ends():
    state = RunState.of(NODES)
    logger = logging.Logger("test")
    warning = RunWarning(what="column 'when': encode: date cannot read", source="Transform")
    handler = ProgressHandler(state, row_counts=dict, cautions=lambda: [warning])
    logger.addHandler(handler)
    out = io.StringIO()
    with ProgressLines(state, Console(file=out, width=60)):
        for name in NODES[:3]:
            logger.info(NODE_STARTS, name)
            assert "Warning" not in out.getvalue()
            logger.info(NODE_ENDS, name)
        assert out.getvalue().count(f"Warning of Transform: {warning.what}.") == 1  # at once
        logger.info(NODE_STARTS, "Trainer")
    assert state.warnings == [warning]  # for the record of a run that fails later


def test_duration():
    assert list(map(duration, (59.94, 59.96, 3725))) == ["59.9 s", "1 min 00 s", "1 h 02 min"]


def test_error_message_inside_a_beam_message():
    text = (
        "Traceback (most recent call last):\n"
        '  File "apache_beam/runners/common.py", line 1, in process\n'
        "    return self.do_fn_invoker.invoke_process(windowed_value)\n"
        '  File "x.py", line 3, in f\n'
        "    raise ValueError(1)\n"
        "ValueError: column 'fare': 3 values in row 7\nuse one value per row"
        " [while running 'Analyze/Map']\n"
    )
    assert error_message(RuntimeError(text)) == (
        "ValueError: column 'fare': 3 values in row 7\nuse one value per row"
    )
    assert error_message(ValueError("column 'x'")) == "ValueError: column 'x'"
    job = "Pipeline taxi_01234567-89ab-cdef-0123-456789abcdef failed in state FAILED: "
    job += "java.io.IOException: no space"
    assert error_message(RuntimeError(job)) == "no space"
