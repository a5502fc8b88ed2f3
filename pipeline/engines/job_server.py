"""Engines behind a Beam job server: environment of the Python workers, checks before a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import pydantic
from pydantic import Field

from pipeline.common.errors import ConfigError
from pipeline.engines.engine import WORKERS_HAVE_TFX, Address, Diagnosis, Engine, Folders, Option
from pipeline.engines.options import check_options
from pipeline.engines.reach import is_loopback, unreachable

EMBED = "embed"
"""The job endpoint inside Beam's Python package, in this process."""

CONNECT_SECONDS = 5.0

# Errors of gRPC in Java and C++ if the worker pool's address has a server of another protocol.
_OTHER_SERVER = re.compile(r"First received frame was not SETTINGS|connect an http1\.x server")
# Errors of gRPC and Java if nothing answers there.
_NO_POOL = re.compile(
    r"UNAVAILABLE|UnknownHost|Unable to resolve host|StartWorker|finishConnect|ConnectException"
)


class JobServerEngine(Engine):
    """An engine behind a Beam job server, with an environment for Python workers."""

    job_endpoint: Address = Field(default="localhost:8099", description="Beam's job server.")
    environment: Literal["loopback", "external", "docker"] = Field(
        default="loopback",
        description=(
            "Where the Python code runs: in the process that submits the job (`loopback`; the "
            "engine must run on the same machine), in processes of the worker pool beside each of "
            "the engine's machines (`external`), or in containers that the engine starts "
            "(`docker`)."
        ),
    )
    worker_pool: Address = Field(
        default="localhost:50000",
        description=(
            "Where the engine's machines find the worker pool (`python -m pipeline worker-pool`); "
            "for environment: external."
        ),
    )
    worker_image: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Image with Beam's SDK harness, TFX and this project; for environment: docker."
        ),
    )

    probe_seconds: int = Field(
        default=60,
        ge=1,
        description="Time limit in seconds of the small job that a run begins with.",
    )

    @pydantic.model_validator(mode="after")
    def _image_and_docker_go_together(self) -> JobServerEngine:
        if self.environment == "docker" and self.worker_image is None:
            raise ValueError(
                "environment: docker needs worker_image, an image with Beam's SDK harness, TFX and "
                "this project, for example worker_image: my-registry/tfx-largebatch:1"
            )
        if self.environment != "docker" and self.worker_image is not None:
            raise ValueError(
                f"worker_image={self.worker_image} needs environment: docker "
                f"(environment: {self.environment} starts no container)"
            )
        return self

    def options(self) -> tuple[Option, ...]:
        """Return the options of the job server and of the Python workers."""
        return (
            Option("runner", "PortableRunner", "submits to a Beam job server"),
            Option("job_endpoint", self.job_endpoint, "beam.job_endpoint: the job server"),
            *self._environment(),
            Option(
                "environment_cache_millis",
                "60000",
                "a worker lives until a minute after its last step, not for one step",
            ),
            Option(
                "experiments",
                "disable_logging_submission_environment",
                "no `pip freeze` for every job",
            ),
        )

    def _environment(self) -> tuple[Option, ...]:
        kind = self.environment.upper()
        if self.environment == "loopback":
            why = "Python code runs in the process that submits the job"
            return Option("environment_type", kind, why), WORKERS_HAVE_TFX
        if self.environment == "external":
            return (
                Option("environment_type", kind, "Python code runs in the worker pool's processes"),
                Option("environment_config", self.worker_pool, "beam.worker_pool"),
                WORKERS_HAVE_TFX,
            )
        image = str(self.worker_image)
        return (
            Option("environment_type", kind, "Python code runs in containers"),
            Option("environment_config", image, "beam.worker_image"),
            Option("sdk_container_image", image, "so TFX is not packed again"),
        )

    @property
    def job_server(self) -> str | None:
        """The job endpoint; None if Beam's embedded job server is used."""
        return None if self.job_endpoint == EMBED else self.job_endpoint

    @property
    def leaves_this_process(self) -> bool:
        """Whether Python code runs in other processes, possibly with other packages and folders."""
        return self.job_server is not None or self.environment != "loopback"

    @property
    def tasks(self) -> int:
        """The number of tasks of a step that run in parallel, if known here; otherwise 1."""
        return 1

    def check(self, folders: Folders) -> None:
        """Check the options against the job server, the engine's machines, and the worker pool."""
        if self.job_server:
            check_options(self, self._ask_job_server(self.job_server))
        self.check_cluster()
        if self.environment == "external":
            self._check_pool()

    def check_cluster(self) -> None:
        """Check the engine's machines behind the job server.

        Raises:
            ConfigError: Machines are missing, or too few for a job.
        """

    def cancel(self, job: str) -> str:
        """Cancel an abandoned job if possible, and return a sentence about the result."""
        return f"The engine may still have the job {job}: cancel it there."

    def log_hint(self) -> str:
        """Return what may prevent a job from ending, and where to look."""
        if self.environment == "loopback":
            return (
                "The engine's machines must reach this process: environment: loopback is for an "
                "engine on this machine."
            )
        if self.environment == "external":
            return (
                f"Check that a worker pool answers at {self.worker_pool} beside each of the "
                "engine's machines. Beam's own pool starts the first `python` on its PATH, which "
                "may lack Beam: its output says so. Use `python -m pipeline worker-pool`."
            )
        return (
            f"Can the engine's machines start {self.worker_image}? To pull an image takes longer "
            "the first time."
        )

    def start_hint(self) -> str:
        """Return how to start a job server of this engine."""
        return "Start it, or name yours"

    def first_error(self, error: BaseException) -> BaseException:
        """Return the error of the first attempt if the engine restarted the job, else `error`."""
        return error

    def diagnose(self, error: BaseException) -> Diagnosis | None:
        """Find a dead process, a resource that the engine lacks, or an unreachable worker pool."""
        if self.job_server is None:  # it runs in this process; only its pool is separate
            return self._pool(str(error))
        if found := self.find_dead_process():
            return found
        for text in map(str, dict.fromkeys((self.first_error(error), error))):
            if found := self.meaning(text) or self._pool(text):
                return found
        return None

    def find_dead_process(self) -> Diagnosis | None:
        """Return the process of the engine that no longer answers, or None."""
        if reason := unreachable(self.job_endpoint, CONNECT_SECONDS):
            return Diagnosis(
                f"Beam's job server at beam.job_endpoint={self.job_endpoint} is gone ({reason})."
            )
        return None

    def meaning(self, text: str) -> Diagnosis | None:
        """Return what the engine lacks if its error text says so, or None."""
        return None

    def _pool(self, text: str) -> Diagnosis | None:
        if self.environment != "external":
            return None
        if _OTHER_SERVER.search(text):
            return Diagnosis(
                f"beam.worker_pool={self.worker_pool}: what answers there is not a worker pool. "
                "Start `python -m pipeline worker-pool`, and give its address."
            )
        if not _NO_POOL.search(text):
            return None
        return Diagnosis(
            f"the engine cannot reach beam.worker_pool={self.worker_pool}. Start "
            "`python -m pipeline worker-pool` there, beside each of the engine's machines."
        )

    def _ask_job_server(self, address: str) -> Mapping[str, str]:
        """Return the options that the job server knows: name -> type."""
        import grpc
        from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

        where, hint = f"beam.job_endpoint={address}", self.start_hint()
        if reason := unreachable(address, CONNECT_SECONDS):
            raise ConfigError(f"{where}: no job server there ({reason}). {hint}.")
        with grpc.insecure_channel(address) as channel:
            server = beam_job_api_pb2_grpc.JobServiceStub(channel)
            request = beam_job_api_pb2.DescribePipelineOptionsRequest()
            try:
                answer = server.DescribePipelineOptions(request, timeout=CONNECT_SECONDS)
            except grpc.RpcError as error:
                raise ConfigError(
                    f"{where}: what answers there is no Beam job server ({error.code().name}). "
                    f"{hint}."
                ) from None
        kinds = beam_job_api_pb2.PipelineOptionType.Enum
        return {option.name: kinds.Name(option.type) for option in answer.options}

    def _check_pool(self) -> None:
        """Check that the worker pool listens, if it is on this machine."""
        if not is_loopback(self.worker_pool.rpartition(":")[0]):
            return  # the engine's machines must reach the pool; this machine need not
        if reason := unreachable(self.worker_pool, CONNECT_SECONDS):
            raise ConfigError(
                f"beam.worker_pool={self.worker_pool}: no worker pool there ({reason}). Start one "
                "with `python -m pipeline worker-pool`; `make flink` starts one, too."
            )
