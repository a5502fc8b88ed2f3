"""Schedules on Kubeflow, which its API and pages call recurring runs."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.common.errors import ConfigError
from pipeline.platforms.cron import CronSchedule
from pipeline.platforms.kubeflow_client import KubeflowConnection, checked_id, page_of
from pipeline.platforms.platform import Say, Schedule, ScheduleAction, ScheduleState, Submission

_PAGE_SIZE = 100
_METHODS = {"pause": "disable", "resume": "enable", "delete": "delete"}
_STATES: Mapping[str, ScheduleState] = {"ENABLED": "active", "DISABLED": "paused"}


class KubeflowSchedules:
    """The recurring runs of a namespace."""

    def __init__(self, timeout: float) -> None:
        """Connect; the timeout in seconds limits each request."""
        self._connection = KubeflowConnection(timeout)

    def list_all(self) -> list[Schedule]:
        """Return all schedules that are visible to the user."""
        found: list[Schedule] = []
        token, seen = "", set()
        while token not in seen:
            seen.add(token)
            page = self._connection.ask(
                "list the schedules",
                lambda client, token=token: client.list_recurring_runs(
                    page_token=token, page_size=_PAGE_SIZE, namespace=self._connection.namespace
                ),
            )
            for each in page.recurring_runs or []:
                cron = (each.trigger and each.trigger.cron_schedule) or None
                periodic = (each.trigger and each.trigger.periodic_schedule) or None
                interval = f"every {periodic.interval_second} s" if periodic else ""
                found.append(
                    Schedule(
                        each.display_name or "",
                        checked_id(each.recurring_run_id, "a recurring run"),
                        _five_fields((cron and cron.cron) or interval),
                        _STATES.get(each.status or "", "ended"),
                    )
                )
            token = page.next_page_token or ""
        return found

    def create(self, submission: Submission, cron: CronSchedule, say: Say) -> str:
        """Upload the pipeline and create a recurring run of that version.

        Raises:
            ConfigError: The schedule has a time zone, which Kubeflow does not support.
        """
        if cron.timezone is not None:
            raise ConfigError(
                f"--timezone {cron.timezone}: Kubeflow has one time zone for all schedules of a "
                "cluster (CRON_SCHEDULE_TIMEZONE of its server, UTC by default); leave it out and "
                "give the hour in that zone."
            )
        connection = self._connection
        pipeline, version = connection.upload(submission, say)
        experiment, experiment_id = connection.experiment(submission)
        name = submission.run_name or submission.name
        made = connection.ask(
            "create the schedule",
            lambda client: client.create_recurring_run(
                experiment_id,
                name,
                cron_expression=cron.kubeflow,
                max_concurrency=1,
                no_catchup=True,
                params=dict(submission.parameters),
                pipeline_id=pipeline,
                version_id=version,
                pipeline_root=submission.pipeline_root or None,  # as for a run
                service_account=submission.profile.service_account if submission.profile else None,
            ),
        )
        schedule_id = checked_id(made.recurring_run_id, "the recurring run")
        say(
            f"Scheduled: {name} in experiment {experiment}, at {cron.expression} in the server's "
            "time zone"
        )
        return page_of(f"recurringrun/details/{schedule_id}")

    def change(self, action: ScheduleAction, schedule: Schedule) -> None:
        """Pause, resume or delete the recurring run; a delete also ends its run in progress.

        The server makes the schedule the owner of a workflow (SetOwnerReferences in KFP's
        resource_manager.go, 2.5 to 2.17), and Kubernetes deletes owned objects.
        """
        method = f"{_METHODS[action]}_recurring_run"
        self._connection.ask(
            f"{action} the schedule", lambda client: getattr(client, method)(schedule.schedule_id)
        )


def _five_fields(cron: str) -> str:
    """Return an expression without its seconds, in the format of `submit --schedule`."""
    fields = cron.split()
    return " ".join(fields[1:]) if len(fields) == 6 and fields[0] == "0" else cron
