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
    """Return path -> recorded answer; a test may change them."""
    return json.loads((Path(__file__).parent / "recorded/flink_restarts.json").read_text())


@pytest.fixture
def rest(answers: dict[str, Any]) -> Iterator[str]:
    """Return the address of a server with these answers."""

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
    answers["jobs/overview"]["jobs"].append({**one, "jid": "0", "start-time": 0})  # an older one
    assert "first attempt failed" in flink_rest.first_exception(rest, JOB)


def test_a_concurrent_exception_may_be_the_first(rest, answers):
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


@pytest.mark.parametrize("forget", ["all but one attempt", "the job"])
def test_one_known_failure_is_printed_once(forget, engine, answers):
    if forget == "the job":
        answers.clear()
    else:
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


@pytest.mark.parametrize(
    ("pool", "reported", "message"),
    [
        (
            "10.255.255.1:50000",
            "java.net.ConnectException: finishConnect(..) failed: Connection refused",
            "cannot reach beam.worker_pool=10.255.255.1:50000. Start",
        ),
        (  # Flink's REST server in place of a pool
            "localhost:8081",
            "First received frame was not SETTINGS. Hex dump for first 5 bytes: 485454502f",
            "beam.worker_pool=localhost:8081: what answers there is not a worker pool",
        ),
    ],
)
def test_a_wrong_pool_is_named(pool, reported, message, engine):
    """The errors are those that Flink 1.19.3 reported."""
    external = engine.model_copy(update={"environment": "external", "worker_pool": pool})
    found = external.diagnose(RuntimeError(f"Pipeline a_b failed in state FAILED: {reported}"))
    assert found is not None
    assert message in found.words
