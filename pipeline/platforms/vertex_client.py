"""Vertex AI Pipelines with Google's client: create a PipelineJob, and follow it.

It uses the plain client and not the class PipelineJob on top of it, whose `submit` creates a
missing bucket and grants accounts access to it.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping

from pipeline.graph.node_names import NodeName
from pipeline.platforms.platform import ApiObject, PlatformError, RunNow, Say, Submission, TaskNow
from pipeline.platforms.platform import RunState as State
from pipeline.platforms.server_text import one_line
from pipeline.platforms.vertex_connection import connect, import_client, translate_errors
from pipeline.report.progress import Status

_NAME = re.compile(r"projects/([\w.:-]+)/locations/([\w-]+)/\w+/([\w.-]+)")
_TASK_STATES: Mapping[str, Status] = {
    "RUNNING": "running",
    "CANCEL_PENDING": "running",
    "CANCELLING": "running",
    "SUCCEEDED": "done",
    "SKIPPED": "cached",
    "FAILED": "failed",
    "CANCELLED": "interrupted",
}
_STATES: Mapping[str, State] = {
    "PIPELINE_STATE_SUCCEEDED": "done",
    "PIPELINE_STATE_FAILED": "failed",
    "PIPELINE_STATE_CANCELLED": "stopped",
}


def submit(submission: Submission, say: Say) -> VertexRun:
    """Create a PipelineJob of a compiled file.

    Labels, service account, network and pipeline root are those of the file.

    Raises:
        PlatformError: There are no credentials, no project or no region, or Vertex refuses the
            job.
    """
    aiplatform = import_client()
    job = pipeline_job(aiplatform, submission)
    with translate_errors("create the job"):
        client, parent = connect(
            aiplatform.PipelineServiceClient, submission.profile, submission.timeout
        )
        made = client.create_pipeline_job(
            parent=parent,
            pipeline_job=job,
            pipeline_job_id=_job_id(submission.name),
            timeout=submission.timeout,
        )
    run = VertexRun(client, made.name, submission.timeout)
    say(f"Started: job {run.job_id} in {run.region} of project {run.project}")
    return run


def pipeline_job(aiplatform: ApiObject, submission: Submission) -> ApiObject:
    """Return the compiled file as a PipelineJob, with the run's name and parameters.

    Raises:
        PlatformError: The file has a field that the installed client does not know, or an option is
            only for Kubeflow.
    """
    from google.protobuf import json_format

    if submission.experiment:
        raise PlatformError(
            f"--experiment {submission.experiment}: Kubeflow's; jobs of Vertex are grouped by "
            "cluster.vertex.labels."
        )
    fields = json.loads(submission.file.read_text(encoding="utf-8"))
    fields["displayName"] = submission.run_name or fields.get("displayName", submission.name)
    if submission.parameters:
        runtime = fields.setdefault("runtimeConfig", {})
        runtime["parameterValues"] = {**runtime.get("parameterValues", {}), **submission.parameters}
    job = aiplatform.PipelineJob()
    try:
        json_format.ParseDict(fields, aiplatform.PipelineJob.pb(job))
    except json_format.ParseError as error:
        raise PlatformError(
            f"{submission.file}: not a PipelineJob that the installed client knows "
            f"({one_line(error)}); compile it again."
        ) from None
    return job


def name_parts(name: str) -> tuple[str, str, str]:
    """Return project, region and id from a resource's name.

    Raises:
        PlatformError: The name is invalid; its parts become parts of addresses and commands.
    """
    if found := _NAME.fullmatch(name):
        return found[1], found[2], found[3]
    raise PlatformError(
        f"Vertex' answer names {name[:200]!r}, not a resource: a proxy changes its answers."
    )


class VertexRun:
    """A PipelineJob."""

    def __init__(self, client: ApiObject, name: str, timeout: float) -> None:
        """Set the client, and `projects/<project>/locations/<region>/pipelineJobs/<id>`."""
        self._client = client
        self._name = name
        self._timeout = timeout
        self.project, self.region, self.job_id = name_parts(name)

    @property
    def page(self) -> str:
        """The address of the job's page."""
        return (
            f"https://console.cloud.google.com/vertex-ai/locations/{self.region}/pipelines/runs/"
            f"{self.job_id}?project={self.project}"
        )

    @property
    def stop(self) -> str:
        """A command that stops the job."""
        call = f'aiplatform.PipelineJob.get("{self._name}").cancel()'
        return f"python -c 'from google.cloud import aiplatform; {call}'"

    def now(self) -> RunNow:
        """Request the state of the job from Vertex."""
        with translate_errors("look at the job"):
            job = self._client.get_pipeline_job(name=self._name, timeout=self._timeout)
            details = list(job.job_detail.task_details)
            return RunNow(
                _STATES.get(job.state.name, "running"),
                {detail.task_name: _task(detail) for detail in details},
                _blessed(details),
                message=job.error.message,
            )


def _job_id(name: str) -> str:
    """Return an id in the format of Google's PipelineJob: the pipeline's name and the second."""
    return f"{re.sub('[^-0-9a-z]+', '-', name.lower()).strip('-')}-{time.strftime('%Y%m%d%H%M%S')}"


def _task(detail: ApiObject) -> TaskNow:
    message = detail.error.message
    main = detail.executor_detail.container_detail.main_job
    main = main or detail.executor_detail.custom_job_detail.job
    if detail.state.name == "FAILED" and main:
        job = shlex.quote(main.rpartition("/")[2])
        message = f"{message}\nIts log: gcloud logging read resource.labels.job_id={job}".strip()
    return TaskNow(
        _TASK_STATES.get(detail.state.name, "waiting"),
        detail.start_time.timestamp() if detail.start_time else None,
        detail.end_time.timestamp() if detail.end_time else None,
        message=message,
    )


def _blessed(details: list[ApiObject]) -> bool | None:
    """Return the Evaluator's decision from its artifact, or None."""
    for detail in details:
        if detail.task_name == NodeName.EVALUATOR and "blessing" in detail.outputs:
            for artifact in detail.outputs["blessing"].artifacts:
                if artifact.metadata and "blessed" in artifact.metadata:
                    return bool(artifact.metadata["blessed"])
    return None
