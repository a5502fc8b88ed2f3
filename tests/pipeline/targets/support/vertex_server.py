"""Vertex AI's PipelineService over REST, by the installed client's own protos.

What comes in is parsed into a PipelineJob, which knows every field or the request fails; what goes
out is that message.
"""

from __future__ import annotations

import json
import re
from typing import Any

from google.cloud import aiplatform_v1
from google.protobuf import json_format
from loopback import Answer, Loopback, Request

Task = aiplatform_v1.PipelineTaskDetail
START = "2026-11-24T12:00:00Z"


class VertexServer(Loopback):
    """One region.

    Attributes:
        jobs: what was created, by name.
        schedules: by name.
        page_size: the most schedules in one answer.
        polls: what a job is at each question, from the first; the last one stays.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.jobs: dict[str, aiplatform_v1.PipelineJob] = {}
        self.polls: list[aiplatform_v1.PipelineJob] = []
        self.schedules: dict[str, aiplatform_v1.Schedule] = {}
        self.page_size = 100

    def _answer(self, request: Request) -> Answer:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        found = re.fullmatch(r"/v1/(projects/[^/]+/locations/[^/]+)/pipelineJobs", request.path)
        if found and request.method == "POST":
            job = aiplatform_v1.PipelineJob()
            json_format.Parse(request.body, aiplatform_v1.PipelineJob.pb(job))
            job.name = f"{found[1]}/pipelineJobs/{request.query['pipelineJobId']}"
            self.jobs[job.name] = job
            return said(job)
        name = request.path.removeprefix("/v1/")
        if name in self.jobs and request.method == "GET":
            now = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
            now.name = name
            return said(now)
        if "/schedules" in name:
            return self._schedules(request, name)
        return error(404, "NOT_FOUND", f"{request.path} is not found.")

    def _schedules(self, request: Request, name: str) -> Answer:
        place, _, rest = name.partition("/schedules")
        if not rest and request.method == "POST":
            schedule = aiplatform_v1.Schedule()
            json_format.Parse(request.body, aiplatform_v1.Schedule.pb(schedule))
            assert schedule.create_pipeline_job_request.parent == place
            assert schedule.max_concurrent_run_count > 0
            schedule.name = f"{place}/schedules/{len(self.schedules) + 1}"
            schedule.state = aiplatform_v1.Schedule.State.ACTIVE
            json_format.ParseDict(
                {"nextRunTime": "2026-11-25T03:00:00Z"}, aiplatform_v1.Schedule.pb(schedule)
            )
            self.schedules[schedule.name] = schedule
            return said(schedule)
        if not rest:
            first = int(request.query.get("pageToken") or 0)
            end = first + self.page_size
            more = {"next_page_token": str(end)} if end < len(self.schedules) else {}
            found = list(self.schedules.values())[first:end]
            return said(aiplatform_v1.ListSchedulesResponse({"schedules": found, **more}))
        name, _, action = name.partition(":")
        if name not in self.schedules:
            return error(404, "NOT_FOUND", f"The Schedule {name} does not exist.")
        if request.method == "DELETE":
            del self.schedules[name]
            return Answer({"name": f"{place}/operations/1", "done": True})
        self.schedules[name].state = {"pause": "PAUSED", "resume": "ACTIVE"}[action]
        return Answer()


def said(message: Any) -> Answer:
    """A message of the API as an answer."""
    return Answer(json.loads(json_format.MessageToJson(type(message).pb(message))))


def error(code: int, status: str, words: str) -> Answer:
    """As Google's APIs say what is wrong."""
    return Answer({"error": {"code": code, "message": words, "status": status}}, code)


def job_now(state: str, words: str = "", **tasks: Any) -> aiplatform_v1.PipelineJob:
    """A job with nodes.

    Args:
        state: `RUNNING`, ...
        words: its error.
        tasks: state of each node; beside it fields of its detail.
    """
    details = [Task(task_name="chicago-taxi-20261124120000", state=Task.State.RUNNING)]
    for index, (name, given) in enumerate(tasks.items()):
        own, fields = given if isinstance(given, tuple) else (given, {})
        ended = {"end_time": f"2026-11-24T12:{index + 1:02d}:00Z"}
        done = own in ("SUCCEEDED", "FAILED", "SKIPPED")
        details.append(
            Task(
                {
                    "task_name": name,
                    "state": own,
                    "start_time": START,
                    **(ended if done else {}),
                    **fields,
                }
            )
        )
    return aiplatform_v1.PipelineJob(
        {
            "state": f"PIPELINE_STATE_{state}",
            "job_detail": {"task_details": details},
            **({"error": {"code": 9, "message": words}} if words else {}),
        }
    )
