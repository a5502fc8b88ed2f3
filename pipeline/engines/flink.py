"""`beam: {engine: flink}`: Apache Flink, started by `make flink` or on your cluster."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from typing import Literal

from pydantic import Field

from pipeline.common.errors import ConfigError
from pipeline.engines.beam_errors import NAMED_JOB_FAILED, error_message
from pipeline.engines.engine import Address, Diagnosis, Folders, Option
from pipeline.engines.job_server import JobServerEngine
from pipeline.engines.probe import NAME
from pipeline.engines.reach import is_this_machine
from pipeline.flink import flink_rest
from pipeline.flink.flink_memory import OPTION, more
from pipeline.flink.flink_state import Cluster, find_cluster

CANCEL_SECONDS = 15.0
"""Time for a cancelled job to free its slots."""
ARRIVAL_SECONDS = 10.0
"""Time for a job that is just being submitted to arrive, so that it can be cancelled."""
OVERDUE_SECONDS = 30.0
"""Time after the limit of a probe job until no run can be waiting for it."""

_STOP = "python -m pipeline flink stop"

_FRAMES = re.compile(r"^\t(?:at |\.\.\. |Suppressed: ).*\n?", re.MULTILINE)

_NO_MORE = (
    "and this machine has no more. Use a machine with more memory, your own Flink cluster, or "
    "another engine (beam.engine: in_memory)."
)

# Pattern in Flink's message -> the setting to raise on a cluster that `make flink` did not start.
_MEMORY = {
    r"exceeds the maximum size of a sort buffer|Record too large|Too few memory segments"
    r"|Could not allocate \d+ pages|too small memory": "taskmanager.memory.managed.size",
    r"Insufficient number of network buffers": "taskmanager.memory.network.max",
    r"Metaspace": "taskmanager.memory.jvm-metaspace.size",
    r"Direct buffer memory": "taskmanager.memory.task.off-heap.size",
    r"OutOfMemoryError|Java heap space|GC overhead limit": "taskmanager.memory.task.heap.size",
}


class Flink(JobServerEngine):
    """Apache Flink behind Beam's Flink job server; `make flink` starts both on this machine."""

    engine: Literal["flink"] = "flink"
    rest: Address | None = Field(
        default="localhost:8081",
        description="Flink's REST endpoint, to check for free slots before a run; null: no check.",
    )
    parallelism: int = Field(
        default=2, ge=1, description="Tasks of a step that run side by side; each takes one slot."
    )

    def options(self) -> tuple[Option, ...]:
        """Return the options of a job server and the parallelism."""
        return (
            *super().options(),
            Option("parallelism", str(self.parallelism), "beam.parallelism: slots of the job"),
            Option(
                "execution_mode_for_batch",
                "BATCH_FORCED",
                "a stage starts when its input is complete, for stages can wait for each other",
            ),
        )

    @property
    def tasks(self) -> int:
        """The parallelism; each task takes one slot."""
        return self.parallelism

    def check(self, folders: Folders) -> None:
        """Check the processes of `make flink`, then everything that a job server needs."""
        self.check_processes()
        super().check(folders)

    def check_processes(self) -> None:
        """Raise if a process of a cluster on this machine has ended, even if free slots remain."""
        cluster = find_cluster(self.job_endpoint)
        dead = [each.name for each in cluster.dead()] if cluster else []
        if cluster and dead and not (dead == ["worker-pool"] and self.environment != "external"):
            raise ConfigError(
                f"beam.engine=flink: {_ended(cluster)} `{cluster.start_command()}` restarts it."
            )

    def check_cluster(self) -> None:
        """Check the free slots of Flink, after cancelling probe jobs of killed runs."""
        if self.rest:
            self.cancel_overdue(self.rest)
            self._check_slots(self.rest)

    def cancel_overdue(self, rest: str) -> None:
        """Cancel probe jobs of killed runs and wait until their slots are free."""

        def overdue(job: flink_rest.Job) -> bool:
            limit = re.fullmatch(rf"{NAME}-(\d+)s-\w+", job["name"])
            return bool(limit) and job["duration"] / 1000 > int(limit[1]) + OVERDUE_SECONDS

        with contextlib.suppress(flink_rest.FlinkError):  # `_check_slots` reports it
            deadline = time.monotonic() + CANCEL_SECONDS
            if flink_rest.cancel_jobs(rest, overdue):
                while flink_rest.overview(rest).free_slots < self.parallelism:
                    if time.monotonic() > deadline:
                        return
                    time.sleep(0.5)

    def _check_slots(self, rest: str) -> None:
        try:
            seen = flink_rest.overview(rest)
            hosts = flink_rest.task_manager_hosts(rest)
        except flink_rest.FlinkError as error:
            raise ConfigError(
                f"beam.rest={rest}: {error}. `make flink` starts Flink on this machine; "
                "rest: null skips this check."
            ) from None
        if seen.slots < self.parallelism:
            start = "Start a TaskManager (`make flink-status` shows what runs)."
            raise ConfigError(
                f"beam.parallelism={self.parallelism} exceeds the {seen.slots} slots of Flink at "
                f"{rest} ({seen.task_managers} TaskManagers). "
                f"{f'Use {seen.slots} or less.' if seen.slots else start}"
            )
        if seen.free_slots < self.parallelism:
            raise ConfigError(
                f"beam.parallelism={self.parallelism}: only {seen.free_slots} of {seen.slots} "
                f"slots of Flink at {rest} are free, {seen.running} jobs run. Wait for them, "
                f"cancel one at http://{rest}, or use a lower parallelism."
            )
        far = [host for host in hosts if not is_this_machine(host)]
        if self.environment == "loopback" and far:
            raise ConfigError(
                f"beam.environment=loopback: the TaskManager at {far[0]} cannot reach workers in "
                "this process. Use environment: external with a worker pool beside each "
                "TaskManager, or environment: docker."
            )

    def cancel(self, job: str) -> str:
        """Cancel the job as soon as Flink knows it."""
        if self.rest:
            deadline = time.monotonic() + ARRIVAL_SECONDS
            with contextlib.suppress(flink_rest.FlinkError):
                while not flink_rest.cancel_job(self.rest, job):
                    if time.monotonic() > deadline:
                        return f"The job {job} has not reached Flink."
                    time.sleep(0.5)
                return f"The job {job} is cancelled."
        return super().cancel(job)

    def log_hint(self) -> str:
        """Return the hint of the base class, after a pointer to Flink's web page."""
        return f"Flink's web page shows what the job waits for. {super().log_hint()}"

    def start_hint(self) -> str:
        """Return that `make flink` starts a job server."""
        return "`make flink` starts one"

    def describe(self, error: BaseException) -> str:
        """Return the message of the job's first attempt, and of its last if it differs."""
        last = error_message(error)
        if (first := self.first_error(error)) is error:
            return last
        return f"{error_message(first)}\nFlink started the job again. It ended in: {last}"

    def first_error(self, error: BaseException) -> BaseException:
        """Return the error of the first attempt, or `error` if Flink stores no other."""
        found = NAMED_JOB_FAILED.match(str(error))
        if not (found and self.rest):
            return error
        try:
            stack = flink_rest.first_exception(self.rest, found["name"])
        except flink_rest.FlinkError:
            return error
        innermost = re.split(r"^Caused by: ", stack, flags=re.MULTILINE)[-1]
        first = RuntimeError(found[0] + _FRAMES.sub("", innermost).strip())
        return first if stack and error_message(first) != error_message(error) else error

    def find_dead_process(self) -> Diagnosis | None:
        """Return a process of `make flink` that has ended, or a service that no longer answers."""
        cluster = find_cluster(self.job_endpoint)
        if cluster and (words := _ended(cluster)):
            if self.environment != "external" and all(
                each.name == "worker-pool" for each in cluster.dead()
            ):
                return None
            fix = cluster.start_command()
            if "OutOfMemory" not in words:
                return Diagnosis(words, fix)
            if size := _more(cluster):
                return Diagnosis(words, f"{fix} {OPTION} {size}")
            return Diagnosis(f"{words} {_has(cluster)}, {_NO_MORE}", fix)
        if found := super().find_dead_process():
            return found
        if self.rest:
            try:
                flink_rest.overview(self.rest)
            except flink_rest.FlinkError as error:
                return Diagnosis(f"Flink's JobManager at beam.rest={self.rest} is gone: {error}.")
        return None

    def meaning(self, text: str) -> Diagnosis | None:
        """Return a diagnosis that names the memory that is too small for the data, or None."""
        for pattern, setting in _MEMORY.items():
            if found := re.search(pattern, text):
                line = next(line for line in text.splitlines() if found[0] in line).strip()
                words = f"Flink has too little memory for these data ({line[-200:]})."
                if cluster := find_cluster(self.job_endpoint):
                    if not (size := _more(cluster)):
                        return Diagnosis(f"{words} {_has(cluster)}, {_NO_MORE}")
                    stop = f"{_STOP} --folder {shlex.quote(str(cluster.folder))}"
                    fix = f"{stop} && {cluster.start_command()} {OPTION} {size}"
                    return Diagnosis(f"{words} {_has(cluster)}: {OPTION} gives it more.", fix)
                return Diagnosis(f"{words} Raise {setting} in its configuration.")
        return None


def _ended(cluster: Cluster) -> str:
    return " ".join(
        f"{each.name} of the Flink cluster in {cluster.folder} ended: {each.last_line()} "
        f"(log: {each.log})."
        for each in cluster.dead()
    )


def _has(cluster: Cluster) -> str:
    return f"It was started with {cluster.memory_mb:,} MB"


def _more(cluster: Cluster) -> str:
    running = (each.process() for each in cluster.processes)
    return more(cluster.memory_mb, held=sum(each.memory_info().rss for each in running if each))
