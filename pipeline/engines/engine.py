"""`beam:` of the YAML: the engine that runs Beam, and Beam's own pipeline options.

beam: {engine: in_memory}                                    # one process (the default)
beam: {engine: multi_processing, workers: 4}                 # processes on this machine
beam: {engine: portable}                                     # Beam's embedded job server
beam: {engine: flink, options: [--job_endpoint=host:8099, --parallelism=2]}
beam: {engine: spark, options: [--job_endpoint=host:8099]}
beam: {engine: dataflow, options: [--project=p, --region=r, --temp_location=gs://b/tmp, ...]}
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import io
import logging
import re
import socket
from typing import TYPE_CHECKING, Literal, get_args

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from pipeline.common.errors import ConfigError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_EngineName = Literal["in_memory", "multi_processing", "portable", "flink", "spark", "dataflow"]
_ENGINES: tuple[_EngineName, ...] = get_args(_EngineName)

_NOT_OFFERED = {
    "dask": "Beam's DaskRunner gives silently wrong results with TensorFlow Transform",
    "direct": "Beam's DirectRunner first tries to download another runner (Prism); "
    "in_memory names FnApiRunner, which DirectRunner stands for",
    "prism": "Beam's Prism runner is a program that Beam downloads when it first runs",
}

_RUNNERS: dict[_EngineName, str] = {
    "in_memory": "FnApiRunner",
    "multi_processing": "FnApiRunner",
    "portable": "PortableRunner",
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
}
# Without packages or an image among the options, every node of TFX copies TFX into a new source
# distribution for the workers (TFX's base_beam_executor.py).
_PACKAGES = ("sdk_container_image", "setup_file", "extra_package", "requirements_file")
_ENVIRONMENT = (
    "--environment_type=LOOPBACK",  # Python code runs in the process that submits the job
    "--environment_cache_millis=60000",  # a worker lives until a minute after its last step
    "--experiments=disable_logging_submission_environment",  # no `pip freeze` for every job
)
# Used where `options` does not name them.
_DEFAULTS: dict[_EngineName, tuple[str, ...]] = {
    "in_memory": (),
    "multi_processing": (),
    "portable": ("--job_endpoint=embed", *_ENVIRONMENT),
    # BATCH_FORCED: a stage starts when its input is complete, for stages can wait for each other.
    "flink": (*_ENVIRONMENT, "--execution_mode_for_batch=BATCH_FORCED"),
    "spark": _ENVIRONMENT,
    "dataflow": (),
}
# Alternatives of which `options` must name one, and an example.
_REQUIRED: dict[_EngineName, tuple[tuple[tuple[str, ...], str], ...]] = {
    "flink": (
        (("job_endpoint", "flink_master"), "--job_endpoint=localhost:8099 (Beam's job server)"),
    ),
    "spark": (
        (("job_endpoint", "spark_master_url"), "--job_endpoint=localhost:8099 (Beam's job server)"),
    ),
    "dataflow": (
        (("project",), "--project=my-project"),
        (("region",), "--region=europe-west1"),
        (("temp_location",), "--temp_location=gs://my-bucket/tmp"),
        (
            _PACKAGES,
            "--sdk_container_image=europe-docker.pkg.dev/my-project/images/tfx-largebatch (workers "
            "start without TFX and this project)",
        ),
    ),
}


# `Pipeline <job> failed in state FAILED: java.io.IOException: <the engine's message>`
_JOB_FAILED = re.compile(r"Pipeline \S+ failed in state \w+: (?:[\w.$]+(?:Exception|Error): )*")


def option_name(argument: str) -> str:
    """Return `name` of `--name=value` or `--name`."""
    return argument.removeprefix("--").partition("=")[0]


class BeamConfig(BaseModel):
    """How Beam runs the data-parallel nodes (ExampleGen, statistics, Transform, Evaluator)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: _EngineName = Field(default="in_memory", description="The runner of Beam.")
    workers: int = Field(
        default=1, ge=1, description="Worker processes of `engine: multi_processing`."
    )
    options: tuple[str, ...] = Field(
        default=(),
        description="Beam's pipeline options, each `--name=value`; Beam documents them for each "
        "runner.",
    )

    @pydantic.field_validator("engine", mode="before")
    @classmethod
    def _is_offered(cls, engine: object) -> object:
        if engine in _ENGINES:
            return engine
        name = str(engine).lower().removesuffix("runner")
        near = difflib.get_close_matches(name, _ENGINES, n=1)
        if name in _NOT_OFFERED:
            problem = f"not offered: {_NOT_OFFERED[name]}."
        else:
            problem = f"unknown. Did you mean {near[0]!r}?" if near else "unknown."
        raise ValueError(f"engine={engine!r} is {problem} Use one of {', '.join(_ENGINES)}.")

    @pydantic.field_validator("options")
    @classmethod
    def _are_options(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for argument in options:
            if not argument.startswith("--") or len(argument.split()) != 1:
                raise ValueError(
                    f"{argument!r} is not a pipeline option; write each as --name=value, "
                    "one list item each"
                )
        return options

    @pydantic.model_validator(mode="after")
    def _fits_the_engine(self) -> BeamConfig:
        if self.workers > 1 and self.engine != "multi_processing":
            raise ValueError(f"workers={self.workers} needs engine: multi_processing")
        names = set(map(option_name, self.options))
        for name, field in (
            ("runner", "engine"),
            ("direct_num_workers", "workers"),
            ("direct_running_mode", "engine"),
        ):
            if name in names:
                raise ValueError(f"options: --{name} is what `{field}` sets; set `{field}` instead")
        missing = [
            example
            for alternatives, example in _REQUIRED.get(self.engine, ())
            if not names.intersection(alternatives)
        ]
        if missing:
            raise ValueError(f"engine: {self.engine} needs among its options {', '.join(missing)}")
        return self

    def pipeline_args(self) -> list[str]:
        """Return the Beam command line, which TFX calls `beam_pipeline_args`."""
        names = set(map(option_name, self.options))
        own = [f"--runner={_RUNNERS[self.engine]}"]
        if self.engine == "multi_processing":
            own += ["--direct_running_mode=multi_processing"]
            own += [f"--direct_num_workers={self.workers}"]
        defaults = _DEFAULTS[self.engine]
        if not names.intersection(_PACKAGES):
            defaults += ("--sdk_container_image=unused",)
        return [
            *own,
            *(each for each in defaults if option_name(each) not in names),
            *self.options,
        ]

    def option(self, name: str) -> str | None:
        """Return the value of a Beam option, None if the command line does not name it."""
        values = [a.partition("=")[2] for a in self.pipeline_args() if option_name(a) == name]
        return values[-1] if values else None


def check_beam(beam: BeamConfig, local_paths: dict[str, str]) -> None:
    """Check the options with Beam's own parser and validator, and where the workers would run.

    Workers need the `local_paths` of the run, a path for each field.

    Raises:
        ConfigError: An option is unknown or wrong, or workers cannot see the paths.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions(beam.pipeline_args())
    _parse(beam, options)
    errors = _objections(beam, options)
    if errors:
        raise ConfigError(f"beam.options (engine: {beam.engine}): {' '.join(errors)}")
    requirements = beam.option("requirements_file")
    if requirements and importlib.util.find_spec("pip") is None:
        raise ConfigError(
            f"beam.options: --requirements_file={requirements} needs pip in this environment, and "
            "there is none. Run `python -m ensurepip`, or name an image that has the packages."
        )
    endpoint = beam.option("job_endpoint")
    if endpoint and endpoint != "embed":
        _check_listens(endpoint)
    if beam.engine == "dataflow" and local_paths:
        paths = " and ".join(f"{field}={path}" for field, path in local_paths.items())
        raise ConfigError(
            f"beam.engine=dataflow: workers in Google Cloud do not see {paths}. A run on this "
            "machine has its folders here: use another engine for it, or deploy the pipeline with "
            "gs:// paths (docs/vertex.md)."
        )


def _check_listens(endpoint: str) -> None:
    """Raise if nothing answers at `host:port`, where Beam would wait for a minute."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(
            f"beam.options: --job_endpoint={endpoint} is not host:port; use such as localhost:8099."
        )
    try:
        socket.create_connection((host, int(port)), 5.0).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"beam.options: --job_endpoint={endpoint}: no job server there ({reason.lower()}). "
            "Start Beam's job server, or name yours."
        ) from None


def _parse(beam: BeamConfig, options: PipelineOptions) -> None:
    """Parse the options; raise for one that Beam would only log, drop, and run without."""
    printed = io.StringIO()
    logger = logging.getLogger("apache_beam.options.pipeline_options")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        with contextlib.redirect_stderr(printed):
            known = options.get_all_options(drop_default=True)
            everything = options.get_all_options(drop_default=True, retain_unknown_options=True)
    except SystemExit:
        reason = printed.getvalue().strip().rpartition("error: ")[2]
        raise ConfigError(f"beam.options: {reason}.") from None
    finally:
        logger.disabled = was_disabled
    has_job_server = beam.option("job_endpoint") not in (None, "embed")
    # A job server has options that Beam's Python SDK does not know.
    for name in () if has_job_server else sorted(set(everything) - set(known)):
        near = difflib.get_close_matches(name, options.get_all_options(), n=1)
        hint = f"Did you mean --{near[0]}?" if near else "Remove it."
        raise ConfigError(f"beam.options: Beam has no option --{name}. {hint}")


def _objections(beam: BeamConfig, options: PipelineOptions) -> list[str]:
    from apache_beam.options.pipeline_options import GoogleCloudOptions, WorkerOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    # With Dataflow's runner, the validator would create a bucket if temp_location is wrong.
    validator = PipelineOptionsValidator(options, runner=None)
    errors = list(validator.validate())
    if beam.engine == "dataflow":
        google, workers = options.view_as(GoogleCloudOptions), options.view_as(WorkerOptions)
        places = ["temp_location", *(["staging_location"] if google.staging_location else [])]
        errors += [
            *validator.validate_cloud_options(google),
            *(text for place in places for text in validator.validate_gcs_path(google, place)),
            *validator.validate_num_workers(workers),
            *validator.validate_worker_region_zone(workers),
        ]
    return errors


def error_message(error: BaseException) -> str:
    """Return the message of code that failed inside Beam, without the layers around it.

    Beam repeats the whole traceback inside the message of the exception that it raises, followed
    by `[while running '<step>']`.
    """
    while error.__cause__ is not None and "[while running" not in str(error):
        error = error.__cause__
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        last = text.rpartition("\n  File ")[2]
        # Below the last frame: its source line (indented), then the message up to the end.
        lines = last.splitlines()[1:]
        while lines and (lines[0].startswith("    ") or not lines[0].strip()):
            lines.pop(0)
        text = "\n".join(lines).strip() or text
    elif found := _JOB_FAILED.match(text):
        text = text[found.end() :]
    else:
        text = f"{type(error).__name__}: {text}"
    return text.partition(" [while running")[0].strip()
