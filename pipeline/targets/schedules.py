"""`submit --schedule` and `python -m pipeline schedules`: runs at scheduled times."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.platforms.cron import CronSchedule
from pipeline.platforms.platform import (
    PlatformError,
    Say,
    Schedule,
    ScheduleAction,
    Scheduler,
    Submission,
)
from pipeline.platforms.server_text import one_line, printable

if TYPE_CHECKING:
    from pipeline.config.cluster import TargetConfig
    from pipeline.config.config import PipelineConfig
    from pipeline.targets.compile import Target

_T = TypeVar("_T")
_DONE = {"pause": "Paused", "resume": "Resumed", "delete": "Deleted"}


def create(
    scheduler: Scheduler, target: Target, submission: Submission, cron: CronSchedule, say: Say
) -> int:
    """Create a schedule of a compiled pipeline, named `submission.run_name`; return the exit code.

    Raises:
        ConfigError: A schedule of this name exists.
        PlatformError: The platform refuses.
    """
    name = submission.run_name or submission.name
    for known in scheduler.list_all():
        if known.name == name:
            raise ConfigError(
                f"{target}: there is a schedule named {name} ({known.state}, {known.cron}), which "
                "keeps its version of the pipeline. Replace it: python -m pipeline schedules "
                f"delete --target {target} {shlex.quote(name)}, then submit "
                "again; or give this one another name with --run-name."
            )
    page = scheduler.create(submission, cron, say)
    say(f"Its page: {page}")
    say(f"To stop it: python -m pipeline schedules pause --target {target} {shlex.quote(name)}")
    return exit_codes.DONE


def scheduler_of(target: Target, profile: TargetConfig | None, timeout: float) -> Scheduler:
    """Return the schedules of a platform; the import of its client here takes seconds."""
    if target == "kubeflow":
        from pipeline.platforms.kubeflow_schedules import KubeflowSchedules

        return KubeflowSchedules(timeout)
    from pipeline.platforms.vertex_schedules import VertexSchedules

    return VertexSchedules(profile, timeout)


def show(target: Target, config: PipelineConfig | None, timeout: float) -> int:
    """Print all schedules; return the exit code.

    Raises:
        ConfigError: The platform refuses, or does not answer.
    """
    found = _asked(
        target, lambda: scheduler_of(target, _profile(config, target), timeout).list_all()
    )
    if not found:
        print("No schedules.")
        return exit_codes.DONE
    rows = [("name", "cron", "state", "next run", "id")]
    rows += [
        (one_line(s.name), one_line(s.cron), s.state, _utc(s.next_run), s.schedule_id)
        for s in sorted(found, key=lambda each: (each.name, each.schedule_id))
    ]
    # Kubeflow does not report the next run.
    shown = [column for column in range(len(rows[0])) if any(row[column] for row in rows[1:])]
    rows = [tuple(printable(row[column]) for column in shown) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
    return exit_codes.DONE


def change(
    action: ScheduleAction, name: str, target: Target, config: PipelineConfig | None, timeout: float
) -> int:
    """Pause, resume or delete a schedule; return the exit code.

    Args:
        action: The action.
        name: The schedule's name or id.
        target: The platform.
        config: Its `cluster.vertex` names project and region; None: use those of this machine.
        timeout: Time limit of one request in seconds.

    Raises:
        ConfigError: No schedule or more than one has this name, or the platform refuses.
    """

    def act() -> Schedule:
        scheduler = scheduler_of(target, _profile(config, target), timeout)
        schedule = _only(scheduler.list_all(), name, target)
        scheduler.change(action, schedule)
        return schedule

    schedule = _asked(target, act)
    print(printable(f"{_DONE[action]}: {schedule.name} ({schedule.schedule_id})"))
    return exit_codes.DONE


def _only(schedules: list[Schedule], name: str, target: Target) -> Schedule:
    found = [s for s in schedules if s.schedule_id == name] or [
        s for s in schedules if s.name == name
    ]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(s.schedule_id for s in found)
        raise ConfigError(f"{target}: {len(found)} schedules are named {name}; give an id: {ids}.")
    names = ", ".join(sorted({printable(one_line(s.name)) for s in schedules})) or "none"
    raise ConfigError(
        f"{target}: no schedule has the name or id {name}; there are: {names}. See python -m "
        f"pipeline schedules list --target {target}."
    )


def _asked(target: Target, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except PlatformError as error:
        raise ConfigError(f"{target}: {error}") from None


def _profile(config: PipelineConfig | None, target: Target) -> TargetConfig | None:
    return getattr(config.cluster, target, None) if config else None


def _utc(seconds: float | None) -> str:
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
