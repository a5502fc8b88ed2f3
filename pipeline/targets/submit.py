"""`python -m pipeline submit`: compile a pipeline, send it to where it runs, and follow it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.platforms.cron import CronSchedule
from pipeline.platforms.platform import PlatformError, RunNow, Submission, SubmittedRun
from pipeline.platforms.server_text import printable
from pipeline.platforms.waiting import wait_for
from pipeline.report.progress import duration
from pipeline.targets import schedules
from pipeline.targets.compiled_spec import CompiledSpec, in_order
from pipeline.targets.run_parameters import given_parameters, values_of
from pipeline.targets.run_time_parameters import rename_as_declared

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig
    from pipeline.targets.compile import Target


@dataclass(frozen=True)
class Options:
    """How a run is to be, beyond what the YAML says.

    Attributes:
        parameters: `name=value` of the pipeline's own parameters.
        experiment: What the run is grouped under.
        run_name: What a person sees; with `cron` the name of the schedule.
        wait: Show its nodes until it ends.
        poll: Seconds between two requests of `wait`.
        timeout: Seconds that one request may take, from connecting to the last byte.
        cron: When the platform starts runs; None: one run, now.
    """

    parameters: Sequence[str] = ()
    experiment: str | None = None
    run_name: str | None = None
    wait: bool = False
    poll: float = 10.0
    timeout: float = 30.0
    cron: CronSchedule | None = None


def submit(
    target: Target | None, config: PipelineConfig | None, spec: Path | None, options: Options
) -> int:
    """Compile a pipeline, or take a compiled one, and start a run or a schedule of it.

    Args:
        target: Where it is to run; None: what the compiled file is for.
        config: The checked configuration; None if `spec` is all that there is.
        spec: What `compile` wrote; None: compile it.
        options: How the run is to be.

    Returns:
        The exit code: see `exit_codes.OF_SUBMIT`.

    Raises:
        ConfigError: A file, a parameter or the configuration is wrong; nothing was started.
    """
    # What is printed may quote a server: neither markup nor emoji names in it are for rich.
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

    def say(text: str) -> None:
        console.print(printable(text))

    with tempfile.TemporaryDirectory() as folder:
        if spec is None:
            if config is None or target is None:
                raise ConfigError("submit: give --target and --config, or --spec with a file.")
            from pipeline.targets.compile import compile_file, file_name  # TFX: seconds

            spec = compile_file(config, target, Path(folder) / file_name(config, target))
            say(f"Compiled {config.name} for {target}")
        compiled = CompiledSpec.read(spec)
        if target is not None and compiled.target != target:
            raise ConfigError(
                f"--spec {spec}: compiled for {compiled.target}, and --target says {target}; leave "
                "--target out, or compile it again."
            )
        submission = Submission(
            spec,
            compiled.name,
            pipeline_root=compiled.root,
            parameters=parameters(compiled, options.parameters),
            profile=getattr(config.cluster, compiled.target, None) if config else None,
            run_name=options.run_name,
            experiment=options.experiment,
            timeout=options.timeout,
        )
        try:
            if options.cron is not None:
                scheduler = schedules.scheduler_of(
                    compiled.target, submission.profile, options.timeout
                )
                return schedules.create(scheduler, compiled.target, submission, options.cron, say)
            run = _platform(compiled.target)(submission, say)
        except PlatformError as error:
            raise ConfigError(f"{compiled.target}: {error}") from None
    return _follow(run, compiled, console, options)


def parameters(compiled: CompiledSpec, given: Sequence[str]) -> dict[str, Any]:
    """Return the values of the pipeline's own parameters that are given, of their types.

    Raises:
        ConfigError: There is no such parameter, a value has another type, or one is missing.
    """
    texts = given_parameters(given)
    values = values_of(compiled, texts)
    return {name: values[name] for name in rename_as_declared(texts, values)}


def _platform(target: Target) -> Callable[[Submission, Callable[[str], None]], SubmittedRun]:
    """Return how to submit; a client is imported here: it takes seconds, and may be missing."""
    if target == "kubeflow":
        from pipeline.platforms import kubeflow_client

        return kubeflow_client.submit
    from pipeline.platforms import vertex_client

    return vertex_client.submit


def _follow(run: SubmittedRun, compiled: CompiledSpec, console: Console, options: Options) -> int:
    """Print where the run is, and wait for it if that was asked for."""
    continues = f"The run continues: {run.page}\nTo stop it: {run.stop}"
    try:
        console.print(f"Its page: {run.page}")
        if not options.wait:
            return exit_codes.DONE
        names = in_order(compiled.spec["root"]["dag"]["tasks"])
        end = wait_for(run, names, console, poll=options.poll)
    except KeyboardInterrupt:
        console.print(f"\nNo longer waiting. {continues}")
        return exit_codes.INTERRUPTED
    except PlatformError as error:
        console.print(f"\n{error}\n{continues}")
        return exit_codes.FAILED
    return _report(end, names, run, console)


def _report(end: RunNow, names: Sequence[str], run: SubmittedRun, console: Console) -> int:
    """Print how the run ended; return the exit code."""
    console.print()
    if end.state == "stopped":
        console.print(f"The run was stopped: {run.page}")
        return exit_codes.FAILED
    if end.state == "failed":
        _report_failure(end, names, console)
        console.print(f"Its page: {run.page}")
        return exit_codes.FAILED
    if end.blessed is None:
        console.print("Every node ran.")
        return exit_codes.DONE
    console.print(
        "Every node ran; blessed"
        if end.blessed
        else "Every node ran; not blessed: it is not pushed"
    )
    return exit_codes.DONE if end.blessed else exit_codes.NOT_BLESSED


def _report_failure(end: RunNow, names: Sequence[str], console: Console) -> None:
    failed = [name for name in names if name in end.tasks and end.tasks[name].status == "failed"]
    for name in failed:
        task = end.tasks[name]
        took = (task.ended or 0) - (task.started or 0)
        after = f" after {duration(took)}" if task.started and task.ended else ""
        console.print(f"{name} failed{after}:", style="bold red")
        console.print(task.message or "the platform does not say why")
    if not failed:
        console.print("The run failed:", style="bold red")
    if end.message and not any(end.tasks[name].message == end.message for name in failed):
        console.print(end.message)
