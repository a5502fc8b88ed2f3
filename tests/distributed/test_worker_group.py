"""Messages between workers, and the errors if a worker is missing or differs."""

from __future__ import annotations

import time

import pytest
from on_workers import command, environment, on_workers

from trainer_module.devices.local_cluster import WorkersFailed, launch

pytestmark = pytest.mark.distributed


def failed(case: str, workers: int = 3) -> dict[str, tuple[int, str]]:
    """Return the exit code and the last lines of each worker that failed."""
    with pytest.raises(WorkersFailed) as caught:
        launch(
            command("talks", case),
            workers=workers,
            env=environment(),
            on_line=lambda name, line: None,
            grace_seconds=1,
        )
    return {each.name: (each.code, "\n".join(each.tail)) for each in caught.value.failed}


def test_each_worker_gets_the_values_of_all():
    for values, chosen, same, left in on_workers("talks", "gathers", workers=3):
        assert values == [[number, "text", None, 0.1] for number in range(3)]
        assert chosen == {"by": 0}
        assert same is True
        assert left.startswith("has closed its connections and cannot call 'after'")


def test_all_workers_report_a_difference_in_settings():
    found = failed("differs")
    assert set(found) == {"worker 0", "worker 1", "worker 2"}
    for code, text in found.values():
        assert code == 1
        assert "Disagreement: the workers differ in their settings" in text
        for number in (1, 2):
            assert f"worker {number} (127.0.0.1:" in text
            assert f"seed is {number} there and 0 on worker 0 (127.0.0.1:" in text
        assert "optimizer.name is" not in text  # the same on all


def test_a_worker_that_never_comes_is_named_on_those_that_did():
    started = time.monotonic()
    found = failed("never comes")
    assert time.monotonic() - started < 30
    for name in ("worker 0", "worker 2"):
        code, text = found[name]
        assert code == 1
        assert "WorkerLost: worker 1 (127.0.0.1:" in text
        assert "did not start within start_timeout_seconds=6:" in text


def test_another_cluster_is_refused():
    for code, text in failed("other cluster", workers=2).values():
        assert code == 1
        assert "worker number 1 has a TF_CONFIG with 2 workers (localhost:" in text


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("is killed", "is lost: its process ended; see its log."),
        ("is stopped", "has been silent for 4 s (worker_timeout_seconds): it is stopped"),
        ("fails", "failed: KeyError: 'a column'"),
        ("ends", "ended while worker 0 (127.0.0.1:"),
        ("strays", "is at 'place 1' and worker 0 (127.0.0.1:"),
    ],
)
def test_the_others_exit_with_the_reason_why_one_was_lost(case, text):
    """Also one whose main thread waits for something else: it is ended, with code 75."""
    found = failed(case)
    if case == "is killed":
        assert found["worker 1"][0] == -9
    if case == "fails":
        assert found["worker 1"][0] == 1
    others = {"worker 0"} if case == "is killed" else {"worker 0", "worker 2"}
    for name in others:
        code, said = found[name]
        assert code == 75
        assert "worker 1 (127.0.0.1:" in said
        assert text in said


def test_all_workers_use_the_smallest_micro_batch_and_keep_it(tmp_path):
    """Also when they are started again with more memory; on one machine they share what is free."""
    for parts, *sizes in on_workers("talks", "sizes", tmp_path, workers=3):
        assert parts == ["26.6667%", "4GiB", 1000]
        assert sizes == [16, 16, 4]
