"""The installed TFX says each of the texts that `tfx_log` understands, and Beam those of errors."""

from __future__ import annotations

import ast
import importlib.util
import logging
from pathlib import Path

import pytest

from pipeline.engines.engine import error_message
from pipeline.report import tfx_log
from pipeline.report.tfx_log import NodeEnds, NodeIsCached, NodeStarts, event_of


def texts_of(module: str) -> set[str]:
    """The string constants of a module's source, which is not imported."""
    package, *rest = module.split(".")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    file = Path(spec.submodule_search_locations[0], *rest).with_suffix(".py")
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("tfx.orchestration.local.local_dag_runner", tfx_log.NODE_STARTS),
        ("tfx.orchestration.local.local_dag_runner", tfx_log.NODE_ENDS),
        ("tfx.orchestration.portable.launcher", tfx_log.CACHED),
        ("apache_beam.runners.portability.portable_runner", "Pipeline %s failed in state %s: %s"),
        ("apache_beam.runners.common", " [while running '%s']"),
    ],
)
def test_the_installed_release_says_it(module, text):
    assert text in texts_of(module)


@pytest.mark.parametrize(
    ("text", "argument", "event"),
    [
        (tfx_log.NODE_STARTS, "Trainer", NodeStarts("Trainer")),
        (tfx_log.NODE_ENDS, "Trainer", NodeEnds("Trainer")),
        (tfx_log.CACHED, 7, NodeIsCached()),
        ("Component %s is resting.", "Trainer", None),
    ],
)
def test_a_line_is_understood(text, argument, event):
    line = logging.LogRecord("absl", logging.INFO, __file__, 1, text, (argument,), None)
    assert event_of(line) == event


def test_the_text_of_a_failed_job_is_what_is_taken_apart():
    name = "taxi_01234567-89ab-cdef-0123-456789abcdef"
    job = f"Pipeline {name} failed in state FAILED: java.io.IOException: no space"
    assert error_message(RuntimeError(job)) == "no space"
