"""Vertex AI Pipelines by Google's own client: a PipelineJob is created, and what became of it.

Credentials are the client's own business: gcloud's, or GOOGLE_APPLICATION_CREDENTIALS. So is the
project where `cluster.vertex` does not name it. Its plain client is used, not the class PipelineJob
above it, whose `submit` makes a bucket where there is none and gives accounts rights to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pipeline.config.cluster import VertexConfig
from pipeline.report.progress import Status
from pipeline.targets.platform import (
    PlatformError,
    RunNow,
    Submission,
    TaskNow,
    without_noise,
)
from pipeline.targets.platform import RunState as State

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"
"""gcloud's own variable for an API that is reached elsewhere, by a private endpoint for example."""
_REGIONS = ("GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOGIN = (
    "gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS=key.json, gives this "
    "machine credentials."
)

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


def submit(it: Submission, say: Callable[[str], None]) -> VertexRun:
    """Creates a PipelineJob of a compiled file.

    Labels, service account, network and pipeline root are those that the file has.

    Args:
        it: the pipeline, and how it is to run.
        say: told what has been done.

    Raises:
        PlatformError: there are no credentials, no project or no region, or Vertex does not take
            the job.
    """
    if it.experiment:
        raise PlatformError(
            f"--experiment {it.experiment}: Kubeflow's; jobs of Vertex are grouped by "
            "cluster.vertex.labels."
        )
    aiplatform = _imported()
    from google.protobuf import json_format

    said = json.loads(it.file.read_text(encoding="utf-8"))
    said["displayName"] = it.run_name or said.get("displayName", it.name)
    if it.parameters:
        said["runtimeConfig"]["parameterValues"] = {
            **said["runtimeConfig"].get("parameterValues", {}),
            **it.parameters,
        }
    job = aiplatform.PipelineJob()
    with _in_words("create the job"):
        json_format.ParseDict(said, aiplatform.PipelineJob.pb(job))
        client, parent = _connected(aiplatform, it)
        made = client.create_pipeline_job(
            parent=parent, pipeline_job=job, pipeline_job_id=_job_id(it.name), timeout=it.timeout
        )
    run = VertexRun(client, made.name, it.timeout)
    say(f"Started: job {run.job_id} in {run.region} of project {run.project}")
    return run


class VertexRun:
    """A PipelineJob."""

    def __init__(self, client: Any, name: str, timeout: float) -> None:
        """Takes the connection, and what Vertex calls the job.

        Args:
            client: of the PipelineService.
            name: `projects/<project>/locations/<region>/pipelineJobs/<id>`.
            timeout: seconds that one request may take.
        """
        self._client = client
        self._name = name
        self._timeout = timeout
        _, self.project, _, self.region, _, self.job_id = name.split("/")

    @property
    def page(self) -> str:
        """Where a person looks at it."""
        return (
            f"https://console.cloud.google.com/vertex-ai/locations/{self.region}/pipelines/runs/"
            f"{self.job_id}?project={self.project}"
        )

    @property
    def stop(self) -> str:
        """A command that ends it."""
        call = f'aiplatform.PipelineJob.get("{self._name}").cancel()'
        return f"python -c 'from google.cloud import aiplatform; {call}'"

    def now(self) -> RunNow:
        """Asks Vertex."""
        with _in_words("look at the job"):
            job = self._client.get_pipeline_job(name=self._name, timeout=self._timeout)
        details = list(job.job_detail.task_details)
        return RunNow(
            _STATES.get(job.state.name, "running"),
            {detail.task_name: _task(detail) for detail in details},
            job.error.message,
            _blessed(details),
        )


def _imported() -> Any:
    try:
        with without_noise():  # of the Python versions that Google goes on with
            from google.cloud import aiplatform_v1
    except ImportError as error:
        raise PlatformError(
            f"submit needs Google's client ({error}): pip install google-cloud-aiplatform."
        ) from None
    return aiplatform_v1


def _connected(aiplatform: Any, it: Submission) -> tuple[Any, str]:
    """Returns a client of the PipelineService, and the place where jobs are created."""
    import google.auth

    profile = it.profile if isinstance(it.profile, VertexConfig) else None
    region = profile.region if profile else None
    region = region or next(filter(None, (os.environ.get(name) for name in _REGIONS)), None)
    if not region:
        raise PlatformError(
            "no region: name it as cluster.vertex.region (--config my.yaml --set "
            f"cluster.vertex.region=europe-west4), or by {_REGIONS[0]}."
        )
    credentials, project = google.auth.default(scopes=[_SCOPE])
    project = (profile.project if profile else None) or project
    if not project:
        raise PlatformError(
            "no project: name it as cluster.vertex.project, by GOOGLE_CLOUD_PROJECT, or with "
            "gcloud config set project NAME."
        )
    client = aiplatform.PipelineServiceClient(
        credentials=credentials,
        # Plain HTTPS goes through proxies that gRPC does not pass.
        transport="rest",
        client_options={
            "api_endpoint": (
                os.environ.get(ENDPOINT) or f"{region}-aiplatform.googleapis.com"
            ).rstrip("/")
        },
    )
    return client, f"projects/{project}/locations/{region}"


def _job_id(name: str) -> str:
    """As Google's own PipelineJob makes it: the pipeline's name and the second."""
    return f"{re.sub('[^-0-9a-z]+', '-', name.lower()).strip('-')}-{time.strftime('%Y%m%d%H%M%S')}"


def _task(detail: Any) -> TaskNow:
    words = detail.error.message
    main = detail.executor_detail.container_detail.main_job
    main = main or detail.executor_detail.custom_job_detail.job
    if detail.state.name == "FAILED" and main:
        job = main.rpartition("/")[2]
        words = f"{words}\nIts log: gcloud logging read resource.labels.job_id={job}".strip()
    return TaskNow(
        _TASK_STATES.get(detail.state.name, "waiting"),
        detail.start_time.timestamp() if detail.start_time else None,
        detail.end_time.timestamp() if detail.end_time else None,
        words,
    )


def _blessed(details: list[Any]) -> bool | None:
    """What the Evaluator wrote to its artifact."""
    for detail in details:
        if detail.task_name == "Evaluator" and "blessing" in detail.outputs:
            for artifact in detail.outputs["blessing"].artifacts:
                if artifact.metadata and "blessed" in artifact.metadata:
                    return bool(artifact.metadata["blessed"])
    return None


@contextlib.contextmanager
def _in_words(doing: str) -> Iterator[None]:
    """Turns what the client raises into words."""
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.protobuf import json_format

    try:
        with without_noise():
            yield
    except (auth.TransportError, requests.RequestException, api.RetryError) as error:
        raise PlatformError(
            f"cannot {doing}: no answer ({_one_line(error)}). Look at this machine's way to "
            "googleapis.com, and at cluster.vertex.region.",
            passes=True,
        ) from None
    except auth.GoogleAuthError as error:
        raise PlatformError(f"cannot {doing}: {_one_line(error).rstrip('.')}. {_LOGIN}") from None
    except api.GoogleAPICallError as error:
        raise _refusal(doing, error) from None
    except json_format.ParseError as error:
        raise PlatformError(
            f"cannot {doing}: the file is no PipelineJob that the installed client knows "
            f"({_one_line(error)}); compile it anew."
        ) from None


def _refusal(doing: str, error: Any) -> PlatformError:
    """What an error of the API means here."""
    said = re.sub(r"^(GET|POST) \S+: ", "", error.message)
    told = f"cannot {doing}: {error.code} {_one_line(said)}".rstrip(".")
    code = int(error.code or 0)
    if code == 401:
        return PlatformError(f"{told}. {_LOGIN}")
    if code == 403:
        return PlatformError(
            f"{told}. You need roles/aiplatform.user in the project, and "
            "roles/iam.serviceAccountUser on the job's service account; the API "
            "aiplatform.googleapis.com has to be enabled."
        )
    if code == 404:
        return PlatformError(
            f"{told}. Look at cluster.vertex.project and cluster.vertex.region, and whether what "
            "the message names is there."
        )
    if code == 409:
        return PlatformError(
            f"{told}. A job of this name was created in this second: submit again."
        )
    if code in (429, 500, 502, 503, 504):
        return PlatformError(f"{told}. Vertex' own failure, or its quota: try again.", passes=True)
    return PlatformError(
        f"{told}. Vertex does not take the compiled file: `python -m pipeline replay` executes it "
        "here; machine and accelerator names are of cluster.vertex.resources."
    )


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:600]
