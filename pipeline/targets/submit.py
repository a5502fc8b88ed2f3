"""`python -m pipeline submit`: a pipeline is compiled, sent to where it runs, and watched."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.report.progress import duration
from pipeline.targets.compiled_spec import CompiledSpec, in_order
from pipeline.targets.platform import PlatformError, RunNow, Submission, SubmittedRun
from pipeline.targets.run_parameters import given_parameters, values_of
from pipeline.targets.run_time_parameters import rename_as_declared
from pipeline.targets.waiting import wait_for

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig
    from pipeline.targets.compile import Target


@dataclass(frozen=True)
class Options:
    """How a run is to be, beyond what the YAML says.

    Attributes:
        parameters: `name=value` of the pipeline's own parameters.
        experiment: what the run is grouped under.
        run_name: what a person sees.
        wait: show its nodes until it ends.
        poll: seconds between two questions of `wait`.
        timeout: seconds that one request may take.
    """

    parameters: Sequence[str] = ()
    experiment: str | None = None
    run_name: str | None = None
    wait: bool = False
    poll: float = 10.0
    timeout: float = 30.0


def submit(
    target: Target | None, config: PipelineConfig | None, spec: Path | None, options: Options
) -> int:
    """Compiles a pipeline, or takes a compiled one, and starts a run of it.

    Args:
        target: where it is to run; None: where the compiled file is for.
        config: the checked configuration; None where `spec` is all that there is.
        spec: what `compile` wrote; None: it is compiled anew.
        options: how the run is to be.

    Returns:
        The exit code: see `exit_codes.OF_SUBMIT`.

    Raises:
        ConfigError: a file, a parameter or the configuration is wrong; nothing was sent.
    """
    console = Console(highlight=False, soft_wrap=True)

    def say(text: str) -> None:
        console.print(text, markup=False)

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
                "--target out, or compile it anew."
            )
        profile = getattr(config.cluster, compiled.target, None) if config else None
        sent = Submission(
            spec,
            compiled.name,
            parameters=parameters(compiled, options.parameters),
            profile=profile,
            run_name=options.run_name,
            experiment=options.experiment,
            timeout=options.timeout,
        )
        try:
            run = _platform(compiled.target)(sent, say)
        except PlatformError as error:
            raise ConfigError(f"{compiled.target}: {error}") from None
    return _watched(run, compiled, console, options)


def parameters(compiled: CompiledSpec, given: Sequence[str]) -> dict[str, Any]:
    """Returns the values of the pipeline's own parameters that are given, of their types.

    Raises:
        ConfigError: there is no such parameter, a value is of another type, or one lacks.
    """
    texts = given_parameters(given)
    values = values_of(compiled, texts)
    return {name: values[name] for name in rename_as_declared(texts, values)}


def _platform(target: Target) -> Callable[[Submission, Callable[[str], None]], SubmittedRun]:
    """A platform's client is imported where it is used: it takes seconds, and may be missing."""
    if target == "kubeflow":
        from pipeline.targets import kubeflow_client

        return kubeflow_client.submit
    from pipeline.targets import vertex_client

    return vertex_client.submit


def _watched(run: SubmittedRun, compiled: CompiledSpec, console: Console, options: Options) -> int:
    """Says where the run is, and waits for it where that is asked."""
    goes_on = f"The run goes on: {run.page}\nTo stop it: {run.stop}"
    try:
        console.print(f"Its page: {run.page}", markup=False)
        if not options.wait:
            return exit_codes.DONE
        names = in_order(compiled.spec["root"]["dag"]["tasks"])
        end = wait_for(run, names, console, poll=options.poll)
    except KeyboardInterrupt:
        console.print(f"\nNot waited for any more. {goes_on}", markup=False)
        return exit_codes.INTERRUPTED
    except PlatformError as error:
        console.print(f"\n{error}\n{goes_on}", markup=False)
        return exit_codes.FAILED
    return _told(end, names, run, console)


def _told(end: RunNow, names: Sequence[str], run: SubmittedRun, console: Console) -> int:
    console.print()
    if end.state == "stopped":
        console.print(f"The run was stopped: {run.page}", markup=False)
        return exit_codes.FAILED
    if end.state == "failed":
        failed = [name for name in names if name in end.tasks]
        failed = [name for name in failed if end.tasks[name].status == "failed"]
        for name in failed:
            task = end.tasks[name]
            took = (task.ended or 0) - (task.started or 0)
            after = f" after {duration(took)}" if task.started and task.ended else ""
            console.print(f"{name} failed{after}:", style="bold red")
            console.print(task.words or "the platform does not say why", markup=False)
        if not failed:
            console.print("The run failed:", style="bold red")
        if end.words and not any(end.tasks[name].words == end.words for name in failed):
            console.print(end.words, markup=False)
        console.print(f"Its page: {run.page}", markup=False)
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
