"""Schedules on Vertex AI, which repeatedly create a PipelineJob of the compiled file."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.config.cluster import TargetConfig
from pipeline.platforms.cron import CronSchedule
from pipeline.platforms.platform import Say, Schedule, ScheduleAction, ScheduleState, Submission
from pipeline.platforms.vertex_client import name_parts, pipeline_job
from pipeline.platforms.vertex_connection import connect, import_client, translate_errors

_STATES: Mapping[str, ScheduleState] = {"ACTIVE": "active", "PAUSED": "paused"}


class VertexSchedules:
    """The schedules of a project in a region."""

    def __init__(self, profile: TargetConfig | None, timeout: float) -> None:
        """Connect; the timeout in seconds limits each request."""
        self._aiplatform = import_client()
        self._timeout = timeout
        with translate_errors("connect"):
            self._client, self._parent = connect(
                self._aiplatform.ScheduleServiceClient, profile, timeout
            )

    def list_all(self) -> list[Schedule]:
        """Return all schedules of pipelines."""
        with translate_errors("list the schedules"):
            request = self._aiplatform.ListSchedulesRequest(parent=self._parent)
            pages = self._client.list_schedules(request=request, timeout=self._timeout)
            return [
                Schedule(
                    each.display_name,
                    name_parts(each.name)[2],
                    each.cron,
                    _STATES.get(each.state.name, "ended"),
                    each.next_run_time.timestamp() if each.next_run_time else None,
                )
                for each in pages
            ]

    def create(self, submission: Submission, cron: CronSchedule, say: Say) -> str:
        """Create a schedule of the compiled file."""
        name = submission.run_name or submission.name
        request = {
            "parent": self._parent,
            "pipeline_job": pipeline_job(self._aiplatform, submission),
        }
        with translate_errors("create the schedule"):
            made = self._client.create_schedule(
                parent=self._parent,
                schedule=self._aiplatform.Schedule(
                    display_name=name,
                    cron=cron.vertex,
                    create_pipeline_job_request=request,
                    # The first limits requests to start a run, the second runs.
                    max_concurrent_run_count=1,
                    max_concurrent_active_run_count=1,
                ),
                timeout=self._timeout,
            )
        project, region, schedule_id = name_parts(made.name)
        zone = cron.timezone or "UTC"
        say(f"Scheduled: {name} in {region} of project {project}, at {cron.expression} ({zone})")
        return (
            f"https://console.cloud.google.com/vertex-ai/locations/{region}/pipelines/schedules/"
            f"{schedule_id}?project={project}"
        )

    def change(self, action: ScheduleAction, schedule: Schedule) -> None:
        """Pause, resume or delete the schedule; Vertex deletes it in the background."""
        name = f"{self._parent}/schedules/{schedule.schedule_id}"
        with translate_errors(f"{action} the schedule"):
            getattr(self._client, f"{action}_schedule")(name=name, timeout=self._timeout)
