"""`python -m pipeline submit`: compile a pipeline, send it to its platform, and follow the run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.secret_checks import looks_secret
from pipeline.platforms.platform import (
    PlatformError,
    RunNow,
    Submission,
    SubmittedRun,
    TaskNow,
    printable,
)
from pipeline.report import console as views
from pipeline.report.progress import RunState, duration
from pipeline.targets.compiled_spec import CompiledSpec, in_order
from pipeline.targets.run_parameters import declared_name, given_parameters, values_of

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig
    from pipeline.targets.compile import Target

_TRIES = 10  # requests in a row that may fail before waiting ends
_SECONDS = 10.0  # between two requests


@dataclass(frozen=True)
class Options:
    """Options of a run beyond the YAML, as `submit --help` has them; times in seconds."""

    parameters: Sequence[str] = ()
    experiment: str | None = None
    run_name: str | None = None
    wait: bool = False
    timeout: int = 30


def submit(
    target: Target | None, config: PipelineConfig | None, spec: Path | None, options: Options
) -> int:
    """Compile a pipeline, or read the compiled file `spec`, and start a run of it.

    Returns the exit code (`exit_codes.OF_SUBMIT`). A ConfigError: a file, a parameter or the
    configuration is wrong, and nothing was started.
    """
    # The output may quote a server: rich must not interpret markup or emoji names in it.
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
            parameters=_parameters(compiled, options.parameters),
            profile=getattr(config.cluster, compiled.target, None) if config else None,
            run_name=options.run_name,
            experiment=options.experiment,
            timeout=options.timeout,
        )
        # The clients take seconds to import, or may be missing.
        if compiled.target == "kubeflow":
            from pipeline.platforms.kubeflow_client import submit as start
        else:
            from pipeline.platforms.vertex_client import submit as start
        try:
            run: SubmittedRun = start(submission, say)
        except PlatformError as error:
            raise ConfigError(f"{compiled.target}: {error}") from None
    continues = f"The run continues: {run.page}\nTo stop it: {run.stop}"
    try:
        console.print(f"Its page: {run.page}")
        if not options.wait:
            return exit_codes.DONE
        names = in_order(compiled.spec["root"]["dag"]["tasks"])
        end = _wait_for(run, names, console)
    except KeyboardInterrupt:
        console.print(f"\nNo longer waiting. {continues}")
        return exit_codes.INTERRUPTED
    except PlatformError as error:
        console.print(f"\n{error}\n{continues}")
        return exit_codes.FAILED
    return _report(end, names, run, console)


def _parameters(compiled: CompiledSpec, given: Sequence[str]) -> JsonObject:
    """Return the given values of the pipeline's parameters, converted to their types.

    A ConfigError names one that is unknown, of another type, missing, or a credential.
    """
    texts = given_parameters(given)
    for name, text in texts.items():
        if reason := looks_secret(name, text):
            raise ConfigError(
                f"--parameter {name}: {reason}, and the platform would show it to everybody who "
                "sees the run. Leave it out, and let nodes read it from cluster.kubeflow.secrets, "
                "or from Secret Manager with their service account."
            )
    values = values_of(compiled, texts)
    return {each: values[each] for each in (declared_name(name, values) for name in texts)}


def _report(end: RunNow, names: Sequence[str], run: SubmittedRun, console: Console) -> int:
    """Print how the run ended, and return the exit code."""
    console.print()
    if end.state == "stopped":
        console.print(f"The run was stopped: {run.page}")
        return exit_codes.FAILED
    if end.state == "failed":
        failed = {
            name: task
            for name in names
            if (task := end.tasks.get(name)) is not None and task.status == "failed"
        }
        for name, task in failed.items():
            has_times = task.started and task.ended
            took = duration((task.ended or 0) - (task.started or 0))
            console.print(
                f"{name} failed{f' after {took}' if has_times else ''}:", style="bold red"
            )
            console.print(task.message or "the platform does not say why")
        if not failed:
            console.print("The run failed:", style="bold red")
        if end.message and end.message not in (task.message for task in failed.values()):
            console.print(end.message)
        console.print(f"Its page: {run.page}")
        return exit_codes.FAILED
    verdict = {None: ".", True: "; blessed", False: "; not blessed: it is not pushed"}
    console.print(f"Every node ran{verdict[end.blessed]}")
    return exit_codes.NOT_BLESSED if end.blessed is False else exit_codes.DONE


def _wait_for(run: SubmittedRun, names: Iterable[str], console: Console) -> RunNow:
    """Show the nodes of a run until it ends, as of a local run; return its final state."""
    state = RunState.of(names)
    failures = 0
    with views.ProgressLines(state, console):
        while True:
            try:
                now = run.now()
                failures = 0
            except PlatformError as error:
                failures += 1
                if not error.is_transient or failures == _TRIES:
                    raise
            else:
                _show(state, now.tasks)
                if now.state != "running":
                    return now
            time.sleep(_SECONDS)


def _show(state: RunState, tasks: Mapping[str, TaskNow]) -> None:
    for node in state.nodes:
        task = tasks.get(node.name)
        if task is None or task.status in ("waiting", node.status):
            continue
        if node.status == "waiting":
            node.started = _here(task.started)
            node.status = "running"
            state.on_change(node, "start")
        if task.status != "running":
            if task.started is not None:
                node.started = _here(task.started)  # for a retried task, of the last attempt
            node.ended = max(node.started, _here(task.ended))
            node.status = task.status
            state.on_change(node, "finish")


def _here(seconds: float | None) -> float:
    """Return a time of the platform on this process' clock."""
    now = time.monotonic()
    return now if seconds is None else min(now, now - (time.time() - seconds))
