"""`beam:` in the YAML: one model per engine, and the Beam pipeline options that it stands for.

beam: {engine: in_memory}                                     # one process (the default)
beam: {engine: multi_processing, workers: 4}                  # processes on this machine
beam: {engine: portable}                                      # Beam's embedded job server
beam: {engine: flink, parallelism: 2, environment: external}  # `make flink`, or your cluster
beam: {engine: spark, job_endpoint: "spark-gateway:8099"}
beam: {engine: dataflow, project: p, region: r, temp_location: "gs://b/tmp", ...}
"""

from __future__ import annotations

import abc
import difflib
import re
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import BaseModel, ConfigDict, Field

NOT_OFFERED = {
    "dask": "Beam's DaskRunner gives silently wrong results with TensorFlow Transform",
    "direct": "Beam's DirectRunner first tries to download another runner (Prism); "
    "in_memory names FnApiRunner, which DirectRunner stands for",
    "prism": "Beam's Prism runner is a program that Beam downloads when it first runs",
}
"""Engines that Beam has and this project refuses, and why."""


class Option(NamedTuple):
    """One Beam pipeline option, and what it is for."""

    name: str
    value: str
    why: str

    def __str__(self) -> str:
        return f"--{self.name}={self.value}"


# base_beam_executor.py of TFX: with neither an image nor packages among its options, every Beam
# node copies TFX into a new source distribution for the workers.
_WORKERS_HAVE_TFX = Option(
    "sdk_container_image",
    "unused",
    "workers use installed packages: TFX need not pack itself anew for every node",
)


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[\w.-]+", host) or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("expected host:port, for example localhost:8099")
    return text


Address = Annotated[str, pydantic.AfterValidator(_address)]
"""`host:port`."""


class Engine(BaseModel, abc.ABC):
    """What every engine has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    extra_args: tuple[str, ...] = Field(
        default=(),
        description="Further Beam pipeline options, each `--name=value`; Beam checks them.",
    )

    @pydantic.field_validator("extra_args")
    @classmethod
    def _are_options(cls, extra_args: tuple[str, ...]) -> tuple[str, ...]:
        for argument in extra_args:
            if not argument.startswith("--") or len(argument.split()) > 1:
                raise ValueError(
                    f"{argument!r} is no pipeline option; write each as --name=value, "
                    "one list item each"
                )
        return extra_args

    @pydantic.model_validator(mode="after")
    def _leave_the_engine_its_options(self) -> Engine:
        own = {option.name for option in self.options()} - {"experiments"}
        for argument in self.extra_args:
            name = argument[2:].partition("=")[0]
            if name in own:
                raise ValueError(
                    f"extra_args: {argument} contradicts what engine: {self.name} sets; "
                    "`python -m pipeline beam-options` shows which field sets it"
                )
        return self

    @property
    def name(self) -> str:
        """The engine as the YAML calls it."""
        return type(self).model_fields["engine"].default

    @abc.abstractmethod
    def options(self) -> tuple[Option, ...]:
        """The pipeline options of this engine, without `extra_args`."""

    def pipeline_args(self) -> list[str]:
        """Beam's command line: what TFX calls `beam_pipeline_args`."""
        return [*map(str, self.options()), *self.extra_args]


class InMemory(Engine):
    """One process on this machine."""

    engine: Literal["in_memory"] = "in_memory"
    workers: int = Field(default=1, ge=1, description="1; more need engine: multi_processing.")

    @pydantic.model_validator(mode="after")
    def _has_one_worker(self) -> InMemory:
        if self.workers > 1:
            raise ValueError(
                f"workers={self.workers} needs engine: multi_processing "
                "(engine: in_memory has one worker)"
            )
        return self

    def options(self) -> tuple[Option, ...]:
        return (
            Option("runner", "FnApiRunner", "Beam's own runner, in this process"),
            _WORKERS_HAVE_TFX,
        )


class MultiProcessing(Engine):
    """Several processes on this machine."""

    engine: Literal["multi_processing"] = "multi_processing"
    workers: int = Field(default=1, ge=1, description="Number of worker processes.")

    def options(self) -> tuple[Option, ...]:
        return (
            Option("runner", "FnApiRunner", "Beam's own runner, with worker processes"),
            Option("direct_running_mode", "multi_processing", "a process for each worker"),
            Option("direct_num_workers", str(self.workers), "beam.workers"),
            _WORKERS_HAVE_TFX,
        )


class JobServerEngine(Engine):
    """An engine behind a Beam job server, whose Python workers are told where to come from."""

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
        description="How long the tiny job that a run begins with may take, in seconds.",
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
            return Option("environment_type", kind, why), _WORKERS_HAVE_TFX
        if self.environment == "external":
            return (
                Option("environment_type", kind, "Python code runs in the worker pool's processes"),
                Option("environment_config", self.worker_pool, "beam.worker_pool"),
                _WORKERS_HAVE_TFX,
            )
        image = str(self.worker_image)
        return (
            Option("environment_type", kind, "Python code runs in containers"),
            Option("environment_config", image, "beam.worker_image"),
            Option("sdk_container_image", image, "so TFX does not pack itself anew"),
        )


def _embed_or_address(text: str) -> str:
    return text if text == "embed" else _address(text)


class Portable(JobServerEngine):
    """Any Beam job server; `embed` is the one inside Beam's Python package."""

    engine: Literal["portable"] = "portable"
    job_endpoint: Annotated[str, pydantic.AfterValidator(_embed_or_address)] = Field(
        default="embed",
        description="`host:port` of a Beam job server, or `embed`: Beam's own, in this process.",
    )


class Flink(JobServerEngine):
    """Apache Flink behind Beam's Flink job server; `make flink` starts both on this machine."""

    engine: Literal["flink"] = "flink"
    rest: Address | None = Field(
        default="localhost:8081",
        description=(
            "Flink's REST endpoint, which is asked for free slots before a run; null: it is not."
        ),
    )
    parallelism: int = Field(
        default=2, ge=1, description="Tasks of a step that run side by side; each takes one slot."
    )

    def options(self) -> tuple[Option, ...]:
        return (
            *super().options(),
            Option("parallelism", str(self.parallelism), "beam.parallelism: slots of the job"),
        )


class Spark(JobServerEngine):
    """Apache Spark behind Beam's Spark job server, which knows the Spark master."""

    engine: Literal["spark"] = "spark"


class Dataflow(Engine):
    """Google Cloud Dataflow."""

    engine: Literal["dataflow"] = "dataflow"
    project: str = Field(description="Google Cloud project that runs and pays for the jobs.")
    region: str = Field(description="Google Cloud region, for example `europe-west1`.")
    temp_location: str = Field(description="`gs://bucket/folder` for temporary files.")
    sdk_container_image: str | None = Field(
        default=None, description="Image of the workers: Beam's SDK harness, TFX and this project."
    )
    max_workers: int | None = Field(
        default=None, ge=1, description="Most machines at a time; Dataflow's default otherwise."
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _names_what_is_missing(cls, value: Any) -> Any:
        if isinstance(value, dict):
            needed = ("project", "region", "temp_location")
            missing = [name for name in needed if not value.get(name)]
            if missing:
                raise ValueError(
                    f"engine: dataflow needs {', '.join(missing)}; for example beam: "
                    "{engine: dataflow, project: my-project, region: europe-west1, "
                    "temp_location: gs://my-bucket/tmp, "
                    "sdk_container_image: europe-docker.pkg.dev/my-project/images/tfx-largebatch}"
                )
        return value

    @pydantic.model_validator(mode="after")
    def _workers_get_this_project(self) -> Dataflow:
        packages = ("--setup_file", "--extra_package", "--requirements_file")
        if self.sdk_container_image is None and not any(
            argument.startswith(packages) for argument in self.extra_args
        ):
            raise ValueError(
                "engine: dataflow starts workers without TFX and this project; name an image that "
                "has both (sdk_container_image), or add --setup_file=... to extra_args"
            )
        return self

    def options(self) -> tuple[Option, ...]:
        options = [
            Option("runner", "DataflowRunner", "submits to Google Cloud Dataflow"),
            Option("project", self.project, "beam.project: who runs and pays for the jobs"),
            Option("region", self.region, "beam.region: where the workers are"),
            Option("temp_location", self.temp_location, "beam.temp_location: temporary files"),
        ]
        if self.sdk_container_image:
            why = "beam.sdk_container_image: workers with TFX and this project"
            options.append(Option("sdk_container_image", self.sdk_container_image, why))
        if self.max_workers:
            options.append(Option("max_num_workers", str(self.max_workers), "beam.max_workers"))
        return tuple(options)


ENGINES: dict[str, type[Engine]] = {
    "in_memory": InMemory,
    "multi_processing": MultiProcessing,
    "portable": Portable,
    "flink": Flink,
    "spark": Spark,
    "dataflow": Dataflow,
}


def _name_the_engine(value: Any) -> Any:
    """Fills in the default engine; refuses the ones that are not offered, with the reason."""
    if not isinstance(value, dict):
        return value
    engine = value.get("engine", "in_memory")
    if engine in ENGINES:
        return {**value, "engine": engine}
    name = str(engine).lower().removesuffix("runner")
    if name in NOT_OFFERED:
        raise ValueError(f"engine={engine!r} is not offered: {NOT_OFFERED[name]}. {_offered()}")
    near = difflib.get_close_matches(name, ENGINES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"engine={engine!r} is unknown.{hint} {_offered()}")


def _offered() -> str:
    return f"Use one of {', '.join(ENGINES)}."


BeamConfig = Annotated[
    InMemory | MultiProcessing | Portable | Flink | Spark | Dataflow,
    Field(discriminator="engine"),
    pydantic.BeforeValidator(_name_the_engine),
]
"""How Beam runs the data-parallel nodes (ExampleGen, statistics, Transform, Evaluator)."""
