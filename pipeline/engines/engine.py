"""The base class of Beam engines: pipeline options, checks before a run, explained failures.

An engine is a frozen model: its fields are those of `beam:` in the YAML. One file each; `table`
lists them.
"""

from __future__ import annotations

import abc
import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from pipeline.engines.beam_errors import error_message

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator


class Option(NamedTuple):
    """One Beam pipeline option and its purpose."""

    name: str
    value: str
    why: str

    def __str__(self) -> str:
        """Return the option as a command-line argument."""
        return f"--{self.name}={self.value}"


class Diagnosis(NamedTuple):
    """The cause of an engine failure.

    Attributes:
        words: Which process ended or which option to raise, in one or two sentences.
        fix: The command that fixes it on this machine; "" if there is none.
    """

    words: str
    fix: str = ""


class Folders(NamedTuple):
    """The folders that workers of a run read and write.

    Attributes:
        root: Folder of the artifacts.
        output: `output.folder`.
        local: Field and path of each file and folder on this machine, including `output.folder`.
    """

    root: str
    output: str
    local: tuple[tuple[str, str], ...]


# TFX's base_beam_executor.py: if the options have neither an image nor packages, every Beam node
# copies TFX into a new source distribution for the workers.
WORKERS_HAVE_TFX = Option(
    "sdk_container_image",
    "unused",
    "workers use installed packages: TFX is not packed again for every node",
)


def address(text: str) -> str:
    """Return the text if it is `host:port`; used as a pydantic validator.

    Raises:
        ValueError: The text is not `host:port`.
    """
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[\w.-]+", host) or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("expected host:port, for example localhost:8099")
    return text


Address = Annotated[str, pydantic.AfterValidator(address)]
"""`host:port`."""


class Engine(BaseModel, abc.ABC):
    """The base class of all engines."""

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
                    f"{argument!r} is not a pipeline option; write each as --name=value, "
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
        """The name of the engine in the YAML."""
        return type(self).model_fields["engine"].default

    @abc.abstractmethod
    def options(self) -> tuple[Option, ...]:
        """Return the pipeline options of this engine, without `extra_args`."""

    def pipeline_args(self) -> list[str]:
        """Return the Beam command line, which TFX calls `beam_pipeline_args`."""
        return [*map(str, self.options()), *self.extra_args]

    @property
    def job_server(self) -> str | None:
        """`host:port` of a job server outside this process, which may define further options."""
        return None

    def objections(
        self, validator: PipelineOptionsValidator, options: PipelineOptions
    ) -> list[str]:
        """Return the objections of Beam's validator to the options of this engine."""
        return []

    def check(self, folders: Folders) -> None:
        """Check what a run needs. Each check has a time limit.

        Args:
            folders: The folders that workers read and write.

        Raises:
            ConfigError: Names what is missing and how to get it.
        """

    def diagnose(self, error: BaseException) -> Diagnosis | None:
        """Find the cause in the engine after a job failed.

        Args:
            error: The exception that Beam raised.

        Returns:
            The diagnosis; None if the job itself failed.
        """
        return None

    def describe(self, error: BaseException) -> str:
        """Return the message of a failed job."""
        return error_message(error)
