"""Chief, workers and parameter servers as real processes, and what the loss of one does."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from on_workers import HERE, command, environment, parse_report

from trainer_module.devices.local_cluster import WorkersFailed, launch

pytestmark = pytest.mark.distributed


def test_windows_are_counted_though_a_worker_is_killed(tmp_path):
    """As many at once as there is room for; a worker is killed and started again.

    With a transform, and an embedding that two columns share.
    """
    back, printed, pids = tmp_path / "back", {}, {}

    def on_line(name: str, line: str) -> None:
        value = parse_report(line)
        if value is None:
            return
        kind, what = value
        if kind == "pid":
            if name in pids:
                back.touch()
            pids[name] = what
        elif kind == "kill":
            os.kill(pids["worker 0"], signal.SIGKILL)
        else:
            printed[kind] = what

    launch(
        command("windows_on_servers", back),
        workers=2,
        parameter_servers=2,
        worker_restarts=1,
        env=environment(),
        on_line=on_line,
    )
    assert back.exists(), "the worker came back"
    steps, updates, expected = printed["taken"]
    assert (steps, updates) == (expected, expected), "Keras' own counter loses what workers add"
    assert printed["epochs"] == [3, 12]
    assert printed["learning_rate"][0] == pytest.approx(printed["learning_rate"][1], rel=1e-6)


def test_a_lost_server_is_reported_and_a_restart_continues_from_the_checkpoint(packed, tmp_path):
    """The first run loses its server in epoch 2, the second one continues from the checkpoint."""
    trainer = {
        "strategy": "parameter_server",
        "global_batch_size": 50,
        "micro_batch_size": 7,
        "epochs": 6,
        "checkpoint_every_steps": 5,
        "steps_per_loop": 1,
        "start_timeout_seconds": 120,
    }
    asked = json.dumps({"data": packed, "trainer": trainer})
    printed, lines = {}, []

    def run(until: str | None) -> None:
        killed = []

        def on_line(name: str, line: str) -> None:
            value = parse_report(line)
            if value is not None:
                printed.setdefault(name, {})[value[0]] = value[1]
            elif name == "chief":
                lines.append(line)
                if until is not None and until in line and not killed:
                    killed.append(os.kill(printed["ps 0"]["pid"], signal.SIGKILL))

        launch(
            [sys.executable, str(HERE / "trains.py"), str(tmp_path), asked],
            workers=2,
            parameter_servers=1,
            env=environment(TRAINS_SLOWLY="0.1" if until else "0"),
            on_line=on_line,
        )

    with pytest.raises(WorkersFailed):
        run(until="epoch 2 eval")
    message = next(line for line in reversed(lines) if "ServerLost: " in line)
    assert "parameter server 0 (127.0.0.1:" in message
    assert "is lost after step" in message
    assert f"the last checkpoint is {tmp_path}/run/checkpoints" in message
    assert not (tmp_path / "serving").exists()
    run(until=None)
    assert any("Continuing from checkpoint" in line for line in lines)
    result = printed["chief"]["result"]
    assert (result["stopped"], result["epochs"], result["steps"]) == ("epochs", 6, 72)
    for name in ("chief", "worker 0", "worker 1", "ps 0"):
        assert printed[name]["there"] is True, "TFX fails a process that returns without an export"
