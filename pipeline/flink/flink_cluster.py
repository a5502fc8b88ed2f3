"""A Flink session cluster on this machine: JobManager, TaskManagers, Beam's job server, workers.

Each is a separate process on the loopback interface, as on a cluster, and stays until it is
stopped:

    python -m pipeline flink start      # `make flink`
    python -m pipeline flink status
    python -m pipeline flink stop
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.flink import flink_rest, processes
from pipeline.flink.flink_config import JAVA_OPTIONS, write_configuration
from pipeline.flink.flink_files import FlinkFiles, ensure_files
from pipeline.flink.flink_memory import DEFAULT, ClusterMemory, cluster_memory
from pipeline.flink.flink_state import HOST, Cluster, Ports
from pipeline.flink.java import find_java

START_SECONDS = 120.0
_PORTS = range(20_000, 32_000)  # Linux assigns 32,768 and above


def start(
    folder: Path,
    ports: Ports | None = None,
    *,
    memory: str = DEFAULT,
    task_managers: int = 2,
    slots: int = 2,
    say: Callable[[str], None] = print,
) -> Cluster:
    """Start all processes and wait until they answer.

    Processes that are left of an earlier start are stopped first, unless they have jobs.

    Args:
        folder: Folder of the configuration, the logs and the state that `flink stop` reads.
        ports: Ports to listen on.
        memory: Size for all processes together: `8GiB`, or a share of the free memory.
        task_managers: Number of TaskManagers.
        slots: Slots of each: the tasks of a job's step that it runs in parallel.
        say: Function that prints messages about slow steps and about an earlier start.

    Raises:
        ConfigError: Java or Maven is missing, a port is taken, there is too little memory, a
            cluster runs in the folder already, or a process ended; nothing is left running.
    """
    ports = ports or Ports()
    java = find_java()
    folder = folder.resolve()
    known = Cluster.load(folder)
    if known:
        _clear(known, say)
    files = ensure_files(say)
    sizes = cluster_memory(memory, task_managers=task_managers)
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
        memory=sizes.task_manager,
        temporary=folder / "tmp",
    )
    cluster = Cluster(folder, ports, (), sizes.total)
    commands = _java_commands(cluster, files, sizes, task_managers)
    try:
        for name, arguments in commands.items():
            # A file, because a command line with the class path fills a screen of `ps`.
            file = folder / "conf" / f"{name}.args"
            file.write_text("".join(f'"{argument}"\n' for argument in arguments))
            cluster = cluster.with_process(processes.start(name, [java, f"@{file}"], folder))
        pool = ["-m", "pipeline", "worker-pool", "--port", str(ports.worker_pool)]
        pool_process = processes.start("worker-pool", [sys.executable, *pool], folder)
        cluster = cluster.with_process(pool_process)
        wait_until_ready(cluster, task_managers * slots)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _clear(known: Cluster, say: Callable[[str], None]) -> None:
    """Stop the processes that are left of an earlier start.

    Raises:
        ConfigError: All of them run, or jobs run on those that are left.
    """
    dead = known.dead()
    if not known.damage and len(dead) < len(known.processes):
        what = f"a Flink cluster of {known.folder} runs already, its REST endpoint at {known.rest}"
        if not dead:
            raise ConfigError(
                f"{what}. Stop it first (`python -m pipeline flink stop`), or give another "
                "--folder."
            )
        jobs = 0
        if all(each.name != "job-server" for each in dead):  # without it, nobody waits for a job
            with contextlib.suppress(flink_rest.FlinkError):
                jobs = flink_rest.overview(known.rest).running
        ended = " and ".join(f"{each.name} ended ({each.last_line()})" for each in dead)
        if jobs:
            raise ConfigError(
                f"{what}, but {ended}; {jobs} jobs run on what is left. Wait for them, or end them "
                "with it (`python -m pipeline flink stop`), then start again."
            )
        say(f"{ended}: restarting the whole cluster ...")
    elif known.damage:
        say(f"{known.damage}: ending {len(known.processes)} processes of an earlier start ...")
    known.stop()


def _java_commands(
    cluster: Cluster, files: FlinkFiles, sizes: ClusterMemory, task_managers: int
) -> dict[str, list[str]]:
    """Return process name -> arguments of its JVM, in the order of their start."""
    folder = cluster.folder
    runtime = "org.apache.flink.runtime"
    # Out of memory, a master ends with the reason in its log instead of hanging.
    jvm = [*JAVA_OPTIONS, "-XX:+ExitOnOutOfMemoryError", f"-Djava.io.tmpdir={folder}/tmp"]
    log4j = f"-Dlog4j2.configurationFile={folder}/conf/log4j.properties"
    flink = ["-cp", files.cluster_class_path, *jvm, log4j]
    configured = ["--configDir", str(folder / "conf")]
    master = [f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint", *configured]
    worker = [f"{runtime}.taskexecutor.TaskManagerRunner", *configured]
    job_server = [
        "org.apache.beam.runners.flink.FlinkJobServerDriver",
        *("--flink-master", cluster.rest, "--job-host", HOST),
        *("--job-port", str(cluster.ports.job_server)),
        *("--artifact-port", "0", "--expansion-port", "0"),
        *("--artifacts-dir", str(folder / "tmp" / "artifacts")),
    ]
    return {
        "JobManager": [f"-Xmx{sizes.job_manager_heap}m", *flink, *master],
        **{
            f"TaskManager-{i}": [*sizes.task_manager.jvm_options(), *flink, *worker]
            for i in range(1, task_managers + 1)
        },
        "job-server": [
            *(f"-Xmx{sizes.job_server_heap}m", *jvm),
            *("-cp", files.job_server_class_path, *job_server),
        ],
    }


def status(cluster: Cluster) -> str:
    """Return a line per process, then slots and jobs."""
    if cluster.damage:
        left = ", ".join(f"{process.name} (pid {process.pid})" for process in cluster.processes)
        return (
            f"{cluster.damage}; running: {left or 'nothing'}. `python -m pipeline flink stop` ends "
            "it, `python -m pipeline flink start` restarts it."
        )
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
    lines.append(f"memory         {cluster.memory_mb:,} MB at most, without workers")
    lines.append(f"logs           {cluster.folder / 'log'}")
    return "\n".join(lines)


def is_healthy(cluster: Cluster) -> bool:
    """Return whether every process runs."""
    return not cluster.damage and not cluster.dead()


def _free_port(port: int, option: str) -> int:
    """Return the port, or for 0 a free one outside of the range that the system assigns.

    A JVM takes seconds to listen on its port, while others open connections.

    Raises:
        ConfigError: The port is taken.
    """
    if not port:
        for candidate in random.sample(_PORTS, len(_PORTS)):
            with contextlib.suppress(ConfigError):
                return _free_port(candidate, option)
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


def wait_until_ready(cluster: Cluster, slots: int) -> None:
    """Wait until Flink has this number of slots, and the other servers listen.

    Raises:
        ConfigError: A process ended, or it took too long.
    """
    deadline = time.monotonic() + START_SECONDS
    while not _is_ready(cluster, slots):
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


def _is_ready(cluster: Cluster, slots: int) -> bool:
    try:
        seen = flink_rest.overview(cluster.rest)
    except flink_rest.FlinkError:
        return False
    return seen.slots == slots and all(
        _listens(port) for port in (cluster.ports.job_server, cluster.ports.worker_pool)
    )


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
