"""The saved state of a Flink cluster on this machine, and its processes if the state is lost."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from pipeline.flink import processes
from pipeline.flink.processes import Background
from shared_core.atomic_files import atomic_write

HOST = "127.0.0.1"
STATE = "cluster.json"
PORT_OPTIONS = ("--rest-port", "--job-port", "--pool-port")
"""Options of `flink start`, in the order of `Ports`."""


@dataclass(frozen=True)
class Ports:
    """The ports that the cluster listens on; 0 selects a free one."""

    rest: int = 8081
    job_server: int = 8099
    worker_pool: int = 50000


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started, running or not."""

    folder: Path
    ports: Ports
    processes: tuple[Background, ...]
    memory_mb: int = 0
    damage: str = ""
    """Why its file cannot be read; `processes` are then the running ones, `ports` the defaults."""

    @classmethod
    def load(cls, folder: Path) -> Cluster | None:
        """Return the cluster that was started in a folder and not stopped, or None."""
        folder = folder.resolve()
        file = folder / STATE
        try:
            written = file.read_bytes()
        except FileNotFoundError:
            # A start that was killed before it wrote anything.
            left = tuple(processes.started_in(folder))
            return cls(folder, Ports(), left, damage=f"{file} is not there") if left else None
        try:
            state = json.loads(written.decode())
            found = tuple(Background(**fields) for fields in state["processes"])
            known = cls(folder, Ports(**state["ports"]), found, state["memory_mb"])
        except (ValueError, KeyError, TypeError) as error:
            damage = f"{file} is damaged ({type(error).__name__}: {error})"
            return cls(folder, Ports(), tuple(processes.started_in(folder)), damage=damage)
        ids = {process.pid for process in found}
        more = tuple(process for process in processes.started_in(folder) if process.pid not in ids)
        return cls(known.folder, known.ports, (*found, *more), known.memory_mb)

    def save(self) -> None:
        """Write the file that `load` reads, atomically."""
        state = {
            "ports": asdict(self.ports),
            "processes": [asdict(process) for process in self.processes],
            "memory_mb": self.memory_mb,
        }
        with atomic_write(self.folder / STATE) as file:
            json.dump(state, file, indent=1)

    def with_process(self, process: Background) -> Cluster:
        """Return the cluster with one more process, and save it."""
        more = dataclasses.replace(self, processes=(*self.processes, process))
        more.save()
        return more

    @property
    def rest(self) -> str:
        """`host:port` of Flink's REST endpoint."""
        return f"{HOST}:{self.ports.rest}"

    def addresses(self) -> dict[str, str]:
        """Return the fields of `beam:` in the YAML that locate the cluster."""
        return {
            "job_endpoint": f"{HOST}:{self.ports.job_server}",
            "rest": self.rest,
            "worker_pool": f"{HOST}:{self.ports.worker_pool}",
        }

    def start_command(self) -> str:
        """Return the shell command that restarts it at the same addresses."""
        ports = zip(PORT_OPTIONS, astuple(self.ports), astuple(Ports()), strict=True)
        options = "".join(f" {option} {port}" for option, port, usual in ports if port != usual)
        return f"python -m pipeline flink start --folder {shlex.quote(str(self.folder))}{options}"

    def task_managers(self) -> list[Background]:
        """Return the TaskManagers' processes."""
        return [process for process in self.processes if process.name.startswith("TaskManager")]

    def dead(self) -> list[Background]:
        """Return the processes that have ended."""
        return [process for process in self.processes if process.process() is None]

    def stop(self) -> None:
        """Stop all processes and remove their files, except the logs."""
        processes.stop(self.processes)
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        (self.folder / STATE).unlink(missing_ok=True)


def find_cluster(job_endpoint: str) -> Cluster | None:
    """Return the cluster of this machine with this job server, also if some processes ended."""
    for folder in sorted(processes.folders()):
        cluster = Cluster.load(folder)
        if cluster and not cluster.damage and _same(job_endpoint, cluster):
            return cluster
    return None


def _same(job_endpoint: str, cluster: Cluster) -> bool:
    host, _, port = job_endpoint.rpartition(":")
    return host in (HOST, "localhost") and port == str(cluster.ports.job_server)
