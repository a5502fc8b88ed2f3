"""A real Flink cluster: a lost TaskManager, wrong settings, the whole pipeline."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attribution_files import check_attributions
from parquet_examples import read_rows
from tfx.types import standard_artifacts

from components import Attributions
from components.input_gradients.executor import Executor
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.engines import flink as flink_engine
from pipeline.engines.engine import Engine
from pipeline.engines.flink import Flink
from pipeline.engines.multi_processing import MultiProcessing
from pipeline.engines.worker_check import check_workers
from pipeline.flink import flink_cluster, flink_rest
from pipeline.preflight.preflight_engine import check_engine, folders_of
from pipeline.report.records import latest_run_of

from . import flink_data
from .conftest import ROOT, TAXI, assert_same

pytestmark = pytest.mark.flink


@pytest.fixture(scope="module")
def fragile_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("fragile")
    yield folder
    if left := flink_cluster.Cluster.load(folder):
        left.stop()


@pytest.fixture
def fragile(fragile_folder: Path) -> flink_cluster.Cluster:
    """Start a cluster of which tests kill processes, or restart its missing processes."""
    return flink_cluster.start(fragile_folder, flink_cluster.Ports(0, 0, 0), memory="5GiB")


def overrides(cluster: flink_cluster.Cluster, *more: str) -> list[str]:
    addresses = [f"beam.{name}={value}" for name, value in cluster.addresses().items()]
    return ["beam.engine=flink", *addresses, *more]


def wait_for_slots(cluster: flink_cluster.Cluster, free: int = 4) -> None:
    """Wait until this number of slots is free."""
    deadline = time.monotonic() + 60
    while (seen := flink_rest.overview(cluster.rest).free_slots) != free:
        assert time.monotonic() < deadline, f"{seen} slots are free"
        time.sleep(0.5)


def run_pipeline(
    cluster: flink_cluster.Cluster, config: Path, *changes: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m pipeline run` on a cluster to its end."""
    arguments = [f"--set={override}" for override in overrides(cluster, *changes)]
    arguments.append("--set=beam.probe_seconds=180")  # a busy machine is no failure
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "run", "--config", str(config), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def check_passed_through_columns(output: Path, *, rows: int) -> None:
    """Assert that every key and every note is there, and missing ones are missing."""
    passed = read_rows(output.glob("artifacts/Transform/transformed_examples/*/Split-*/*"))
    assert len(passed) == rows
    keys = sorted(value for row in passed for value in row[flink_data.KEY])
    assert keys == [i for i in range(1, rows + 1) if i % 3]
    notes = {value for row in passed for value in row[flink_data.NOTE]}
    assert notes == {f"note {i}".encode() for i in range(1, rows + 1) if i % 2}


def attribute(run: Path, engine: Engine, folder: Path) -> Path:
    """Run InputGradients of a run again on another engine; return the artifact's folder."""
    records = latest_run_of(load_config(TAXI, [f"output.folder={run}"]))
    examples, model, output = (
        standard_artifacts.Examples(),
        standard_artifacts.Model(),
        Attributions(),
    )
    output.uri = str(folder)
    for artifact, found in (
        (examples, records["ArrowExampleGen"].output("examples")),
        (model, records["Trainer"].output("model")),
    ):
        assert found is not None
        artifact.uri = found.uri
        for name in {"payload_format", "file_format"} & found.properties.keys():
            artifact.set_string_custom_property(name, str(found.properties[name]))
    examples.split_names = '["train", "eval"]'
    options = {"rows": 1200, "steps": 10, "split": "eval", "slices": '["payment_type"]'}
    Executor(Executor.Context(beam_pipeline_args=engine.pipeline_args())).Do(
        {"examples": [examples], "model": [model]},
        {"attributions": [output]},
        {**options, "transformed": 0, "batch_rows": 256},
    )
    return folder


@pytest.mark.timeout(180)
@pytest.mark.parametrize("environment", ["loopback", "external"])
def test_preflight_passes(environment, flink, write):
    check_engine(load_config(write(), overrides(flink, f"beam.environment={environment}")))


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["parallelism=9"], "exceeds the 4 slots of Flink"),
        (["job_endpoint={rest}"], "what answers there is no Beam job server"),
        (["rest={job_endpoint}"], "what answers there is not Flink"),
        (
            ["environment=external", "worker_pool={rest}"],
            "what answers there is not a worker pool",
        ),
        (["environment=docker", "worker_image=no/image"], "a first small job failed"),
    ],
)
def test_mistakes(changes, message, flink, write):
    changes = [f"beam.{change.format(**flink.addresses())}" for change in changes]
    with pytest.raises(ConfigError) as error:
        check_engine(load_config(write(), overrides(flink, *changes)))
    assert message in str(error.value)
    wait_for_slots(flink)


@pytest.fixture
def pipelined(monkeypatch):
    """Jobs that wait until Flink has slots for all their stages."""
    options = Flink.options
    monkeypatch.setattr(
        Flink,
        "options",
        lambda engine: tuple(
            option for option in options(engine) if option.name != "execution_mode_for_batch"
        ),
    )


@pytest.mark.timeout(90)
@pytest.mark.usefixtures("pipelined")
def test_a_job_that_exceeds_the_time_limit_is_cancelled(flink, write):
    """It waits for slots that Flink lacks, and has taken all that there are."""
    changes = ["beam.parallelism=9", "beam.probe_seconds=8"]
    config = load_config(write(), overrides(flink, *changes))
    assert isinstance(config.beam, Flink)
    with pytest.raises(ConfigError, match=r"no end within 8 .* preflight-8s-\w+ is cancelled"):
        # `check_engine` would check the slots first.
        check_workers(config.beam, folders_of(config))
    wait_for_slots(flink)
    config = load_config(write(), overrides(flink, *changes, "beam.rest=null"))
    with pytest.raises(ConfigError, match="may still have the job preflight-") as error:
        check_engine(config)
    (name,) = re.findall(r"preflight-8s-\w+", str(error.value))
    assert flink_rest.cancel_job(flink.rest, name)
    wait_for_slots(flink)


@pytest.fixture
def handled_interrupts():
    """Handle SIGINT, which a shell's background job ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("handled_interrupts", "pipelined")
def test_an_abandoned_job_is_cancelled(flink, write, monkeypatch):
    """Ctrl-C cancels a job; the next run cancels the job of a killed run."""
    config = load_config(write(), overrides(flink, "beam.parallelism=9", "beam.probe_seconds=120"))
    assert isinstance(config.beam, Flink)

    ended = threading.Event()

    def interrupt():
        wait_for_slots(flink, 0)
        os.kill(os.getpid(), signal.SIGINT)
        # Python loses one that comes while a finalizer or a callback from C runs.
        while not ended.wait(30):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        check_workers(config.beam, folders_of(config))
    ended.set()
    thread.join()
    wait_for_slots(flink)

    killed = config.beam.model_copy(update={"probe_seconds": 8})
    with monkeypatch.context() as patch:
        patch.setattr(Flink, "cancel", lambda engine, job: "")
        with pytest.raises(ConfigError, match="no end within 8"):
            check_workers(killed, folders_of(config))
    wait_for_slots(flink, 0)
    config.beam.cancel_overdue(flink.rest)
    assert flink_rest.overview(flink.rest).free_slots == 0  # a run may still wait for it
    monkeypatch.setattr(flink_engine, "OVERDUE_SECONDS", -8.0)
    config.beam.model_copy(update={"parallelism": 4}).cancel_overdue(flink.rest)
    assert flink_rest.overview(flink.rest).free_slots == 4


def test_the_job_server_checks_its_own_options(flink, write):
    wrong = overrides(flink, "beam.extra_args=[--object_reus=true]")
    with pytest.raises(ConfigError, match=r"its flink job server has .* --object_reus\. Did"):
        check_engine(load_config(write(), wrong))
    check_engine(load_config(write(), overrides(flink, "beam.extra_args=[--object_reuse]")))


@pytest.mark.timeout(900)
def test_the_whole_taxi_pipeline(flink, tmp_path):
    """Every Beam node on Flink; the model reaches the thresholds of the example.

    The attributions are those of two processes, bit for bit.
    """
    explain = "explain={rows: 1200, slices: [payment_type], steps: 10}"
    done = run_pipeline(flink, TAXI, f"output.folder={tmp_path}", explain)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "blessed: every threshold holds" in done.stdout
    assert "15,002 rows" in done.stdout
    (attributions,) = tmp_path.glob("artifacts/InputGradients/attributions/*")
    check_attributions(attributions, rows=1200, slices=["payment_type"])
    again = attribute(tmp_path, MultiProcessing(workers=2), tmp_path / "again")
    for file in ("rows/rows-00000.parquet", "rows/rows-00001.parquet", "summary.json"):
        assert (again / file).read_bytes() == (attributions / file).read_bytes()
    # The probe job of the preflight, and six Beam nodes.
    assert flink_rest.overview(flink.rest).finished >= 7


@pytest.mark.timeout(600, func_only=True)  # it may create `in_memory`
def test_a_killed_task_manager(fragile, nodes, in_memory, transform, tmp_path):
    """The job restarts on the other TaskManager with the right result; so does a rerun."""
    engine = Flink.model_validate(fragile.addresses())
    victim = fragile.task_managers()[0]
    killer = threading.Thread(target=_kill_once_running, args=(fragile, victim.pid))
    killer.start()
    recovered = transform(nodes["taxi"], engine, tmp_path / "recovered")
    killer.join()
    assert victim.process() is None
    assert _restarts(fragile) > 0, "the job did not need the TaskManager that was killed"
    assert not flink_cluster.is_healthy(fragile)
    again = transform(nodes["taxi"], engine, tmp_path / "again")
    assert_same(recovered, in_memory["taxi"])
    assert_same(again, in_memory["taxi"])


@pytest.mark.timeout(600)
def test_a_job_server_that_dies_during_a_run(fragile, tmp_path):
    """The error names the process, the finished nodes and the command that continues the run.

    With 64 MB for each slot, this number of columns fails with "Record too large".
    """
    config = flink_data.write(tmp_path, floats=40, texts=1, rows=5_000, source="parquet")
    server = next(process for process in fragile.processes if process.name == "job-server")
    arguments = (fragile, tmp_path, server.pid)
    threading.Thread(target=_kill_in_statistics, args=arguments, daemon=True).start()
    done = run_pipeline(fragile, config)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "StatisticsGen failed after" in done.stdout
    assert f"job-server of the Flink cluster in {fragile.folder} ended" in done.stdout
    assert "taken from the cache by the next run:" in done.stdout
    assert "ExampleGen" in done.stdout.partition("by the next run:")[2]
    assert f"To fix it:   {fragile.start_command()}\n" in done.stdout
    assert f"To continue: python -m pipeline run --config {config}" in done.stdout
    assert "Rendezvous" not in done.stdout

    restarted = flink_cluster.start(fragile.folder, fragile.ports, memory="5GiB")
    done = run_pipeline(restarted, config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"ExampleGen +cached", done.stdout)
    assert "5,000 rows" in done.stdout
    check_passed_through_columns(tmp_path / "out", rows=5_000)


def _kill_in_statistics(cluster: flink_cluster.Cluster, folder: Path, pid: int) -> None:
    while not list(folder.glob("out/artifacts/StatisticsGen/statistics/*")):
        time.sleep(0.2)
    _kill_once_running(cluster, pid)


def _kill_once_running(cluster: flink_cluster.Cluster, pid: int) -> None:
    """Kill a process while some tasks of a job have results on TaskManagers and others wait."""
    while not any(
        job["state"] == "RUNNING" and job["tasks"]["finished"] >= 10
        for job in flink_rest.ask(cluster.rest, "jobs/overview")["jobs"]
    ):
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)


def _restarts(cluster: flink_cluster.Cluster) -> int:
    """Return the number of jobs that restarted tasks."""
    jobs = flink_rest.ask(cluster.rest, "jobs")["jobs"]
    times = [flink_rest.ask(cluster.rest, f"jobs/{job['id']}")["timestamps"] for job in jobs]
    return sum(time["RESTARTING"] > 0 for time in times)
