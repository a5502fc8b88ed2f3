"""A Flink session cluster on this machine: JobManager, TaskManagers, Beam's job server, workers.

Each is a process of its own on the loopback interface, as on a cluster, and stays until it is
stopped:

    python -m pipeline flink start      # `make flink`
    python -m pipeline flink status
    python -m pipeline flink stop
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.config import ConfigError
from pipeline.engines import flink_rest, processes
from pipeline.engines.flink_config import (
    JAVA_OPTIONS,
    TASK_MANAGER_MEMORY,
    write_configuration,
)
from pipeline.engines.flink_files import ensure_files
from pipeline.engines.java import find_java
from pipeline.engines.processes import Background

HOST = "127.0.0.1"
START_SECONDS = 120.0
_STATE = "cluster.json"


@dataclass(frozen=True)
class Ports:
    """Where the cluster listens; 0 takes a free one."""

    rest: int = 8081
    job_server: int = 8099
    worker_pool: int = 50000


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started, running or not."""

    folder: Path
    ports: Ports
    processes: tuple[Background, ...]

    @classmethod
    def load(cls, folder: Path) -> Cluster | None:
        """The cluster that was started in a folder and not stopped, if any."""
        try:
            state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        found = (Background(**fields) for fields in state["processes"])
        return cls(folder, Ports(**state["ports"]), tuple(found))

    def save(self) -> None:
        """Writes what `load` reads."""
        state = {
            "ports": asdict(self.ports),
            "processes": [asdict(process) for process in self.processes],
        }
        (self.folder / _STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")

    @property
    def rest(self) -> str:
        """`host:port` of Flink's REST endpoint."""
        return f"{HOST}:{self.ports.rest}"

    def addresses(self) -> dict[str, str]:
        """The fields of `beam:` in the YAML that say where the cluster is."""
        return {
            "job_endpoint": f"{HOST}:{self.ports.job_server}",
            "rest": self.rest,
            "worker_pool": f"{HOST}:{self.ports.worker_pool}",
        }

    def task_managers(self) -> list[Background]:
        """The TaskManagers' processes."""
        return [process for process in self.processes if process.name.startswith("TaskManager")]

    def stop(self) -> None:
        """Ends every process and removes what they left, except the logs."""
        processes.stop(self.processes)
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / _STATE).unlink(missing_ok=True)


def start(
    folder: Path,
    ports: Ports | None = None,
    *,
    task_managers: int = 2,
    slots: int = 2,
    say: Callable[[str], None] = print,
) -> Cluster:
    """Starts everything and waits until it answers.

    Args:
        folder: gets the configuration, the logs and what must be remembered to stop it.
        ports: where to listen.
        task_managers: number of TaskManagers.
        slots: slots of each: how many tasks of a job's step it runs side by side.
        say: is told what takes long.

    Raises:
        ConfigError: Java or Maven is missing, a port is taken, a cluster runs in the folder
            already, or a process ended; nothing is left running.
    """
    ports = ports or Ports()
    java = find_java()
    folder = folder.resolve()
    known = Cluster.load(folder)
    if known:
        if any(process.process() for process in known.processes):
            raise ConfigError(
                f"a Flink cluster of {folder} runs already, its REST endpoint at {known.rest}. "
                "Stop it first (`python -m pipeline flink stop`), or give another --folder."
            )
        known.stop()
    files = ensure_files(say)
    ports = Ports(
        rest=_free_port(ports.rest, "--rest-port"),
        job_server=_free_port(ports.job_server, "--job-port"),
        worker_pool=_free_port(ports.worker_pool, "--pool-port"),
    )
    for name in ("conf", "log", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    say("starting Flink, Beam's job server and the worker pool ...")
    write_configuration(
        folder / "conf",
        host=HOST,
        rest_port=ports.rest,
        rpc_port=_free_port(0, ""),
        slots=slots,
        temporary=folder / "tmp",
    )
    cluster = Cluster(folder, ports, ())
    runtime = "org.apache.flink.runtime"
    jvm = [*JAVA_OPTIONS, f"-Djava.io.tmpdir={folder}/tmp"]
    log4j = f"-Dlog4j2.configurationFile={folder}/conf/log4j.properties"
    flink = ["-cp", files.cluster_class_path, *jvm, log4j]
    configured = ["--configDir", str(folder / "conf")]
    master = [f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint", *configured]
    worker = [f"{runtime}.taskexecutor.TaskManagerRunner", *configured]
    job_server = [
        "org.apache.beam.runners.flink.FlinkJobServerDriver",
        *("--flink-master", cluster.rest, "--job-host", HOST),
        *("--job-port", str(ports.job_server), "--artifact-port", "0", "--expansion-port", "0"),
        *("--artifacts-dir", str(folder / "tmp" / "artifacts")),
    ]
    pool = ["-m", "pipeline", "worker-pool", "--port", str(ports.worker_pool)]
    commands = {
        "JobManager": ["-Xmx512m", *flink, *master],
        **{
            f"TaskManager-{i}": [*TASK_MANAGER_MEMORY, *flink, *worker]
            for i in range(1, task_managers + 1)
        },
        "job-server": ["-Xmx512m", *jvm, "-cp", files.job_server_class_path, *job_server],
    }
    started: list[Background] = []
    try:
        for name, arguments in commands.items():
            # A file of arguments: with its class path on it, a command line fills a screen of `ps`.
            file = folder / "conf" / f"{name}.args"
            file.write_text("".join(f'"{argument}"\n' for argument in arguments))
            started.append(processes.start(name, [java, f"@{file}"], folder / "log"))
        started.append(processes.start("worker-pool", [sys.executable, *pool], folder / "log"))
        cluster = Cluster(folder, ports, tuple(started))
        cluster.save()
        _wait_until_ready(cluster, task_managers)
    except BaseException:
        Cluster(folder, ports, tuple(started)).stop()
        raise
    return cluster


def status(cluster: Cluster) -> str:
    """A line per process, then slots and jobs."""
    lines = []
    where = {
        "JobManager": f"http://{cluster.rest}",
        "job-server": f"{HOST}:{cluster.ports.job_server}",
        "worker-pool": f"{HOST}:{cluster.ports.worker_pool}",
    }
    for background in cluster.processes:
        process = background.process()
        if process:
            memory = f"{process.memory_info().rss / 2**20:5,.0f} MB"
            state = f"pid {background.pid:<8} {memory}  {where.get(background.name, '')}"
        else:
            state = f"not running: {background.last_line()}"
        lines.append(f"{background.name:<14} {state}".rstrip())
    try:
        seen = flink_rest.overview(cluster.rest)
    except flink_rest.FlinkError as error:
        lines.append(f"slots          unknown: {cluster.rest}: {error}")
    else:
        lines.append(
            f"slots          {seen.free_slots} of {seen.slots} free; jobs: {seen.running} running, "
            f"{seen.finished} finished, {seen.failed} failed, {seen.cancelled} cancelled"
        )
    lines.append(f"logs           {cluster.folder / 'log'}")
    return "\n".join(lines)


def is_healthy(cluster: Cluster) -> bool:
    """Whether every process still runs."""
    return all(process.process() for process in cluster.processes)


def _free_port(port: int, option: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise ConfigError(
                f"port {port} of {HOST} is taken by another program. Stop that one, or use another "
                f"port: {option} 0 takes a free one."
            ) from None
        return probe.getsockname()[1]


def _wait_until_ready(cluster: Cluster, task_managers: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _is_ready(cluster, task_managers):
        for background in cluster.processes:
            if background.process() is None:
                raise ConfigError(
                    f"{background.name} ended: {background.last_line()} (log: {background.log})."
                )
        if time.monotonic() > deadline:
            raise ConfigError(
                f"Flink did not answer within {START_SECONDS:.0f} seconds; "
                f"its logs are in {cluster.folder / 'log'}."
            )
        time.sleep(0.5)


def _is_ready(cluster: Cluster, task_managers: int) -> bool:
    try:
        seen = flink_rest.overview(cluster.rest)
    except flink_rest.FlinkError:
        return False
    return seen.task_managers == task_managers and all(
        _listens(port) for port in (cluster.ports.job_server, cluster.ports.worker_pool)
    )


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
