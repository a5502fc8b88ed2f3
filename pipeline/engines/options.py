"""An engine's pipeline options, checked by Beam's parser and validator, with explanations.

Beam logs a line about an unknown option, drops it, and runs. This module raises an error instead.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import io
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.common.errors import ConfigError
from pipeline.engines.engine import Engine

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

# Type of a job server's option -> arguments of `add_argument`; otherwise a text.
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "BOOLEAN": {"action": "store_true"},
    "ARRAY": {"action": "append"},
    "INTEGER": {"type": int},
    "NUMBER": {"type": float},
}


def check_options(
    engine: Engine, job_server_options: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Parse and validate the options of an engine with Beam.

    Args:
        engine: The `beam:` section.
        job_server_options: Options that the job server knows in addition to Beam's Python SDK:
            name -> type. None: the job server was not queried, and options that only it could know
            are accepted.

    Returns:
        The options that Beam parsed: option -> value, only those that differ from Beam's defaults.

    Raises:
        ConfigError: Neither Beam nor the engine's job server knows an option, a value has the
            wrong type, or Beam's PipelineOptionsValidator objects.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    own = job_server_options or {}
    add_runner_options = functools.partial(_add_options, own)
    options = PipelineOptions(engine.pipeline_args())
    printed = io.StringIO()
    logger = logging.getLogger("apache_beam.options.pipeline_options")
    logger.disabled = True  # it would warn about an option that is rejected below
    try:
        with contextlib.redirect_stderr(printed):
            everything = options.get_all_options(
                drop_default=True, add_extra_args_fn=add_runner_options, retain_unknown_options=True
            )
            known = options.get_all_options(drop_default=True, add_extra_args_fn=add_runner_options)
    except SystemExit:
        reason = printed.getvalue().strip().rpartition("error: ")[2]
        raise ConfigError(f"beam.extra_args: {reason}.") from None
    finally:
        logger.disabled = False
    unknown = sorted(set(everything) - set(known))
    if unknown and (engine.job_server is None or job_server_options is not None):
        raise ConfigError(_unknown_option(unknown[0], engine, own))
    _validate(engine, options)
    return everything


def options_text(engine: Engine) -> str:
    """Return the checked options, one per line, each with its purpose.

    Raises:
        ConfigError: As in `check_options`.
    """
    check_options(engine)
    lines = [(str(option), option.why) for option in engine.options()]
    lines += [(argument, "beam.extra_args") for argument in engine.extra_args]
    width = max(len(option) for option, _ in lines)
    return "\n".join(f"{option:<{width}}  {why}" for option, why in lines)


def _add_options(options: Mapping[str, str], parser: argparse.ArgumentParser) -> None:
    """Add a job server's options to Beam's parser, as Beam's PortableRunner does."""
    for name, kind in options.items():
        # An option of the same name in Beam's Python SDK takes precedence.
        with contextlib.suppress(argparse.ArgumentError):
            parser.add_argument(f"--{name}", **_ARGUMENTS.get(kind, {}))


def _unknown_option(name: str, engine: Engine, own: Mapping[str, str]) -> str:
    from apache_beam.options.pipeline_options import PipelineOptions

    near = difflib.get_close_matches(name, [*PipelineOptions([]).get_all_options(), *own], n=1)
    hint = f"Did you mean --{near[0]}?" if near else "Remove it."
    who = f"neither Beam nor its {engine.name} job server has an" if own else "Beam has no"
    return f"beam.extra_args: {who} option --{name}. {hint}"


def _validate(engine: Engine, options: PipelineOptions) -> None:
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    # With Dataflow's runner, the validator would create a bucket if temp_location is wrong.
    validator = PipelineOptionsValidator(options, runner=None)
    errors = [*validator.validate(), *engine.objections(validator, options)]
    if errors:
        raise ConfigError(f"beam (engine: {engine.name}): {' '.join(errors)}")
