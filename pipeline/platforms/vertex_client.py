"""Vertex AI Pipelines with Google's client: create a PipelineJob, and follow it.

It uses the plain client and not the class PipelineJob on top of it, whose `submit` creates a
missing bucket and grants accounts access to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping

from pipeline.config.cluster import TargetConfig, VertexConfig
from pipeline.graph.node_names import NodeName
from pipeline.platforms.platform import (
    ApiObject,
    PlatformError,
    RunNow,
    Say,
    Submission,
    SubmittedRun,
    TaskNow,
    connection_error,
    one_line,
    refusal,
    without_noise,
)
from pipeline.platforms.platform import RunState as State
from pipeline.report.progress import Status

# gcloud's own variable for an API that is reached elsewhere, by a private endpoint for example.
_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"
_REGIONS = ("GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOGIN = (
    "gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS=key.json, gives this "
    "machine credentials."
)
_FIXES = {
    401: _LOGIN,
    403: "You need roles/aiplatform.user in the project, and roles/iam.serviceAccountUser on the "
    "service account that runs it; the API aiplatform.googleapis.com must be enabled.",
    404: "Look at cluster.vertex.project and cluster.vertex.region, and whether what the message "
    "names is there.",
    409: "Something of this name was just created, or is being changed: try again.",
    0: "Vertex refuses what was sent: `python -m pipeline replay` executes the compiled file here; "
    "machine and accelerator names are those of cluster.vertex.resources.",
}
_IF_BUSY = "Vertex' own failure, or its quota: try again."
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


def submit(submission: Submission, say: Say) -> SubmittedRun:
    """Create a PipelineJob of a compiled file, with the file's labels, account and root."""
    try:
        with without_noise():  # about supported Python versions
            from google.cloud import aiplatform_v1
    except ImportError as error:
        raise PlatformError(
            f"Google's client cannot be imported ({error}): pip install google-cloud-aiplatform."
        ) from None
    job = _pipeline_job(aiplatform_v1, submission)
    name = re.sub("[^-0-9a-z]+", "-", submission.name.lower()).strip("-")
    with _translated("create the job"):
        client, parent = _connect(aiplatform_v1.PipelineServiceClient, submission.profile)
        made = client.create_pipeline_job(
            parent=parent,
            pipeline_job=job,
            # As Google's PipelineJob forms it.
            pipeline_job_id=f"{name}-{time.strftime('%Y%m%d%H%M%S')}",
            timeout=submission.timeout,
        )
    parts = _NAME.fullmatch(made.name)
    if parts is None:
        raise PlatformError(
            f"Vertex' answer names {made.name[:200]!r}, not a job: a proxy changes its answers."
        )
    project, region, job_id = parts.groups()
    say(f"Started: job {job_id} in {region} of project {project}")
    return SubmittedRun(
        f"https://console.cloud.google.com/vertex-ai/locations/{region}/pipelines/runs/{job_id}"
        f"?project={project}",
        "python -c 'from google.cloud import aiplatform; "
        f'aiplatform.PipelineJob.get("{made.name}").cancel()\'',
        lambda: _job_now(client, made.name, submission.timeout),
    )


def _pipeline_job(aiplatform: ApiObject, submission: Submission) -> ApiObject:
    """Return the compiled file as a PipelineJob, with the run's name and parameters."""
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


def _job_now(client: ApiObject, name: str, timeout: float) -> RunNow:
    with _translated("look at the job"):
        job = client.get_pipeline_job(name=name, timeout=timeout)
        details = list(job.job_detail.task_details)
        return RunNow(
            _STATES.get(job.state.name, "running"),
            {detail.task_name: _task(detail) for detail in details},
            _blessed(details),
            message=job.error.message,
        )


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


def _connect(service: ApiObject, profile: TargetConfig | None) -> tuple[ApiObject, str]:
    """Return a client, and `projects/<project>/locations/<region>`, of the profile or machine."""
    import google.auth

    profile = profile if isinstance(profile, VertexConfig) else None
    region = profile.region if profile else None
    region = region or next(filter(None, (os.environ.get(name) for name in _REGIONS)), None)
    if not region:
        raise PlatformError(
            "no region: name it as cluster.vertex.region (--config my.yaml --set "
            f"cluster.vertex.region=europe-west4), or by {_REGIONS[0]}."
        )
    try:
        credentials, project = google.auth.default(scopes=[_SCOPE])
    except ValueError as error:  # an invalid key; other failures have separate classes
        raise PlatformError(
            f"the key file that GOOGLE_APPLICATION_CREDENTIALS names cannot be used "
            f"({one_line(error)}). {_LOGIN}"
        ) from None
    project = (profile.project if profile else None) or project
    if not project:
        raise PlatformError(
            "no project: name it as cluster.vertex.project, by GOOGLE_CLOUD_PROJECT, or with "
            "gcloud config set project NAME."
        )
    address = os.environ.get(_ENDPOINT) or f"{region}-aiplatform.googleapis.com"
    client = service(
        credentials=credentials,
        transport="rest",  # HTTPS passes proxies that block gRPC
        client_options={"api_endpoint": address.rstrip("/")},
    )
    return client, f"projects/{project}/locations/{region}"


@contextlib.contextmanager
def _translated(action: str) -> Iterator[None]:
    """Convert exceptions of the client into errors with a fix."""
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.protobuf import json_format

    try:
        with without_noise():
            yield
    except (auth.TransportError, requests.RequestException, api.RetryError) as error:
        hint = "Look at this machine's way to googleapis.com, and at cluster.vertex.region."
        raise connection_error(action, error, hint) from None
    except auth.GoogleAuthError as error:
        raise PlatformError(f"cannot {action}: {one_line(error).rstrip('.')}. {_LOGIN}") from None
    except api.GoogleAPICallError as error:
        message = re.sub(r"^[A-Z]+ \S+: ", "", error.message)
        text = one_line(message)
        raise refusal(action, int(error.code or 0), text, _FIXES, _IF_BUSY) from None
    # From the client, if an answer has other types than the API, such as a login page.
    except (
        *(json_format.ParseError, ValueError, TypeError, AttributeError),
        *(LookupError, RecursionError),
    ) as error:
        address = os.environ.get(_ENDPOINT)
        hint = f"{_ENDPOINT} is {address}." if address else "Look at HTTPS_PROXY of this machine."
        raise PlatformError(
            f"cannot {action}: the answer is not one of Vertex' API ({type(error).__name__}: "
            f"{one_line(error)}): a login page, or a proxy between this machine and Vertex. {hint}"
        ) from None
