"""A cluster's memory is divided, and errors name the option with a larger size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.common.errors import ConfigError
from pipeline.engines import flink as flink_engine
from pipeline.engines.flink import Flink
from pipeline.flink import flink_memory
from pipeline.flink.flink_memory import LEAST_MB, PROMISES, cluster_memory, divide, more
from pipeline.flink.flink_state import Cluster, Ports

GIB = 1 << 30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the free bytes of a machine of 512 GiB."""

    def machine(free: int) -> None:
        monkeypatch.setattr(flink_memory, "machine_memory", lambda: 512 * GIB)
        monkeypatch.setattr(flink_memory, "free_machine_memory", lambda: free)

    return machine


@pytest.mark.parametrize("total", [LEAST_MB, 10_000, 65_536])
def test_the_parts_sum_to_the_total(total):
    sizes = divide(total, task_managers=2)
    one = sizes.task_manager
    managed = one.managed // PROMISES
    each = one.heap + managed + one.network + one.off_heap + one.metaspace + one.overhead
    assert total - 1 <= sizes.job_manager_heap + sizes.job_server_heap + 2 * each <= total
    # The pipeline of test_flink fails with 128 MB.
    assert managed >= 256
    options = {name.split("memory.")[1]: size for name, size in one.flink_options().items()}
    assert options["managed.size"] == f"{one.managed}mb"
    assert (
        int(options["framework.heap.size"][:-2]) + int(options["task.heap.size"][:-2]) == one.heap
    )
    assert one.jvm_options()[0] == f"-Xmx{one.heap}m"


@pytest.mark.parametrize(
    ("wanted", "free", "total"),
    [
        ("60%", 10 * GIB, 6144),  # the default
        ("60%", 6 * GIB, LEAST_MB),  # bounds, not what is taken
        ("60%", 500 * GIB, 24 * 1024),
        ("90%", 10 * GIB, 9216),
        ("8GiB", 1 * GIB, 8192),
        ("6442450944", 1 * GIB, 6144),
    ],
)
def test_sizes_and_shares(wanted, free, total, machine):
    machine(free)
    assert cluster_memory(wanted, task_managers=2).total == total


@pytest.mark.parametrize(
    ("wanted", "free", "message"),
    [
        ("much", 10, r"--memory=much: use bytes"),
        ("1GiB", 10, r"--memory=1GiB gives Flink 1,024 MB of the .* and it needs 5,120 MB"),
        ("10%", 10, r"--memory=10% gives Flink 1,024 MB"),
        ("60%", 3, r"Flink needs 5,120 MB, and 3\.0 GiB are free .* name a size \(--memory 5GiB\)"),
        ("95%", 3, r"Flink needs 5,120 MB, and 3\.0 GiB are free"),
        ("999GiB", 3, r"--memory=999GiB is more than .* has: 512\.0 GiB, of which 3\.0 GiB are"),
    ],
)
def test_wrong_sizes_are_rejected(wanted, free, message, machine):
    machine(free * GIB)
    with pytest.raises(ConfigError, match=message):
        cluster_memory(wanted, task_managers=2)


@pytest.mark.parametrize(
    ("has", "free", "held", "named"),
    [
        (5120, 30, 2, "10GiB"),  # twice as much
        (5120, 8, 2, "8GiB"),  # four fifths of what is free without it
        (5120, 5, 1, ""),  # 4 GiB: no more than it has
        (2048, 30, 2, "6GiB"),
    ],
)
def test_an_error_proposes_no_more_than_the_machine_has(has, free, held, named, machine):
    machine(free * GIB)
    assert more(has, held=held * GIB) == named


def test_a_job_that_needs_more_than_the_machine_has(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(Flink, "find_dead_process", lambda engine: None)
    cluster = Cluster(tmp_path, Ports(), (), memory_mb=5120)
    monkeypatch.setattr(flink_engine, "find_cluster", lambda endpoint: cluster)
    error = RuntimeError("Pipeline x failed in state FAILED: Record too large.")
    for free, words, fix in (
        (5, "It was started with 5,120 MB, and this machine has no more. Use a machine", ""),
        (9, "It was started with 5,120 MB: --memory gives it more.", f"{tmp_path} --memory 7GiB"),
    ):
        machine(free * GIB)
        found = Flink().diagnose(error)
        assert found is not None
        assert words in found.words
        assert found.fix.endswith(fix) if fix else not found.fix


@pytest.mark.parametrize(
    ("reported", "setting"),
    [
        ("java.io.IOException: Cannot write record to fresh sort buffer. Record too large.", "man"),
        ("Insufficient number of network buffers: required 65, but only 3 available.", "network"),
        ("java.lang.OutOfMemoryError: Java heap space", "task.heap"),
        ("java.lang.OutOfMemoryError: Metaspace", "jvm-metaspace"),
        ("java.lang.OutOfMemoryError: Direct buffer memory", "task.off-heap"),
    ],
)
def test_a_job_without_enough_memory_names_the_setting(reported, setting, monkeypatch):
    monkeypatch.setattr(Flink, "find_dead_process", lambda engine: None)
    monkeypatch.setattr(flink_engine, "find_cluster", lambda endpoint: None)  # that of `make flink`
    error = RuntimeError(f"Pipeline x failed in state FAILED: {reported}\n\tat a.b(C.java)")
    found = Flink().diagnose(error)
    assert found is not None
    assert reported in found.words
    assert f"Raise taskmanager.memory.{setting}" in found.words
