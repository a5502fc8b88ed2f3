"""A restarted job of Flink reports its first failure.

A server on this machine gives the answers of a real Flink 1.19.3, recorded from a job whose first
attempt raised a ValueError and whose two others raised ConnectionErrors (Java's stack frames are
cut).
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pipeline.engines import flink as flink_engine
from pipeline.engines.flink import Flink
from pipeline.flink import flink_rest
from pipeline.report.progress import NodeState, RunState
from pipeline.run import runner

JOB = "BeamApp-root-1123151855-80bece35"
FAILED = f"Pipeline {JOB}_dab870e2-5b86-4272-9bf6-cfe6d2e6d647 failed in state FAILED: "
ENDED = (
    "java.lang.RuntimeException: Error received from SDK harness for instruction 8: Traceback "
    '(most recent call last):\n  File "fails.py", line 13, in fail\n    raise ConnectionError()\n'
    "ConnectionError: attempt 5: nobody answers [while running 'Map(fail)']\n"
)
LOST = {
    "timestamp": 1,
    "stacktrace": (
        "org.apache.flink.util.FlinkException: outer\n\tat a.B.c(B.java:1)\n"
        "Caused by: java.lang.OutOfMemoryError: Direct buffer memory\n\tat d.E.f(E.java:2)\n"
        "\t... 8 more\n"
    ),
}


@pytest.fixture
def answers() -> dict[str, Any]:
    """Path -> answer; the recorded ones, to be changed."""
    return json.loads((Path(__file__).parent / "recorded/flink_restarts.json").read_text())


@pytest.fixture
def rest(answers: dict[str, Any]) -> Iterator[str]:
    """Where the server listens."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.lstrip("/"))
            self.send_response(200 if answer is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def engine(rest: str, monkeypatch: pytest.MonkeyPatch) -> Flink:
    monkeypatch.setattr(Flink, "find_dead_process", lambda engine: None)  # its job server is none
    monkeypatch.setattr(flink_engine, "find_cluster", lambda endpoint: None)
    return Flink(rest=rest)


def entries(answers: dict[str, Any]) -> list[dict[str, Any]]:
    (path,) = (path for path in answers if path.endswith("/exceptions"))
    return answers[path]["exceptionHistory"]["entries"]


def test_the_first_of_three_attempts(rest, answers):
    assert "first attempt failed" not in entries(answers)[0]["stacktrace"]
    assert "ValueError: column x: the first attempt failed" in flink_rest.first_exception(rest, JOB)
    assert flink_rest.first_exception(rest, "preflight-unknown") == ""
    (one,) = (job for job in answers["jobs/overview"]["jobs"] if job["name"] == JOB)
    answers["jobs/overview"]["jobs"].append({**one, "jid": "0", "start-time": 0})  # of old
    assert "first attempt failed" in flink_rest.first_exception(rest, JOB)


def test_one_that_failed_beside_another_may_be_the_first(rest, answers):
    entries(answers)[0]["concurrentExceptions"].append(LOST)
    assert flink_rest.first_exception(rest, JOB) == LOST["stacktrace"]
    entries(answers).clear()
    assert flink_rest.first_exception(rest, JOB) == ""


def test_a_run_prints_both(engine):
    shown = io.StringIO()
    config: Any = SimpleNamespace(beam=engine)
    state = RunState([NodeState("Transform", "failed")])
    runner.print_failure(RuntimeError(FAILED + ENDED), state, config, Console(file=shown))
    assert shown.getvalue() == (
        "ValueError: column x: the first attempt failed\n"
        "Flink started the job again. It ended in: ConnectionError: attempt 5: nobody answers\n"
    )


def test_equal_failures_are_printed_once(engine, answers):
    del entries(answers)[1:]
    assert engine.describe(RuntimeError(FAILED + ENDED)) == (
        "ConnectionError: attempt 5: nobody answers"
    )


def test_missing_memory_is_reported_if_it_failed_first(engine, answers):
    entries(answers)[-1].update(LOST)
    found = engine.diagnose(RuntimeError(FAILED + ENDED))
    assert found is not None
    assert "java.lang.OutOfMemoryError: Direct buffer memory)" in found.words
    assert "Raise taskmanager.memory.task.off-heap.size" in found.words


def test_without_an_answer_there_is_the_last_one(engine, answers):
    answers.clear()
    assert engine.describe(RuntimeError(FAILED + ENDED)) == (
        "ConnectionError: attempt 5: nobody answers"
    )


def test_a_pool_that_a_task_manager_does_not_reach(engine):
    """As Flink 1.19.3 said it of a pool at an address where nobody is."""
    far = engine.model_copy(update={"environment": "external", "worker_pool": "10.255.255.1:50000"})
    said = "java.net.ConnectException: finishConnect(..) failed: Connection refused"
    found = far.diagnose(RuntimeError(f"Pipeline a_b failed in state FAILED: {said}"))
    assert found is not None
    assert "cannot reach beam.worker_pool=10.255.255.1:50000. Start" in found.words


def test_a_server_that_is_not_a_pool(engine):
    """As Flink 1.19.3 reported its own REST server in place of a pool."""
    other = engine.model_copy(update={"environment": "external", "worker_pool": "localhost:8081"})
    said = "First received frame was not SETTINGS. Hex dump for first 5 bytes: 485454502f"
    found = other.diagnose(RuntimeError(f"Pipeline a_b failed in state FAILED: {said}"))
    assert found is not None
    assert "beam.worker_pool=localhost:8081: what answers there is not a worker pool" in found.words
