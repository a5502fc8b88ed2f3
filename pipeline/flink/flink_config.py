"""Flink's configuration for a session cluster on one machine: every memory size is named."""

from __future__ import annotations

from pathlib import Path

from pipeline.flink.flink_memory import TaskManagerMemory

# Flink's own list for Java 17 (its default env.java.opts.all), of what its serializers reach into.
_OPENED = (
    *("java.base/sun.net.util", "java.base/java.lang", "java.base/java.net", "java.base/java.io"),
    *("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang.reflect"),
    *("java.base/java.text", "java.base/java.time", "java.base/java.util"),
    *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic"),
    "java.base/java.util.concurrent.locks",
)

JAVA_OPTIONS = (
    "-XX:+UseSerialGC",  # one collector thread, less memory: several JVMs share a few cores
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
)


def write_configuration(
    folder: Path,
    *,
    host: str,
    rest_port: int,
    rpc_port: int,
    slots: int,
    memory: TaskManagerMemory,
    temporary: Path,
) -> None:
    """Write `config.yaml` and `log4j.properties`.

    Args:
        folder: Flink's `--configDir`.
        host: The only address that Flink's processes listen on.
        rest_port: Port of the REST endpoint.
        rpc_port: Port at which TaskManagers find the JobManager.
        slots: Slots of each TaskManager.
        memory: Sizes of each TaskManager.
        temporary: Folder for all files that Flink writes.
    """
    options = {
        "jobmanager.rpc.address": host,
        "jobmanager.bind-host": host,
        "jobmanager.rpc.port": rpc_port,
        "rest.address": host,
        "rest.bind-address": host,
        "rest.port": rest_port,
        "taskmanager.host": host,
        "taskmanager.bind-host": host,
        "taskmanager.numberOfTaskSlots": slots,
        # A job's tasks on both TaskManagers, so that the loss of one is noticed and survived.
        "cluster.evenly-spread-out-slots": "true",
        "taskmanager.cpu.cores": 1,
        **memory.flink_options(),
        # A Beam pipeline has hundreds of shuffles, each of which wants buffers: with Flink's
        # defaults jobs end in "Insufficient number of network buffers". 8 KB segments give four
        # times the buffers of the same memory; 64 is enough for a sort-shuffle to work.
        "taskmanager.memory.segment-size": "8kb",
        "taskmanager.network.sort-shuffle.min-buffers": 64,
        # A TaskManager whose port is closed is given up after two heartbeats (in milliseconds); one
        # that only does not answer is busy: a Transform of 40 columns is 1,352 tasks, and with
        # Flink's 10 seconds for an answer, as with 15 for a heartbeat, it was given up on 2 cores.
        "heartbeat.interval": 2_000,
        "heartbeat.timeout": 120_000,
        "pekko.ask.timeout": "120 s",
        # Its tasks then start again on what is left. Set here, for every job: Beam hands its own
        # number_of_execution_retries to streaming jobs alone. One loss fails many tasks, within
        # seconds and separately: this strategy, unlike fixed-delay, takes those that fail
        # before the restart for one failure.
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "5 s",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": 2,
        # Where what is left has too few slots, the job ends with that reason, after a minute.
        "slot.request.timeout": 60_000,
        "io.tmp.dirs": temporary,
        "process.working-dir": temporary / "work",
    }
    text = "".join(f"{name}: {value}\n" for name, value in options.items())
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    (folder / "log4j.properties").write_text(_LOG4J, encoding="utf-8")


_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %-5p %c{1} %m%n
"""
