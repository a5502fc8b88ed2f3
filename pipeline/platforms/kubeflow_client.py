"""Kubeflow Pipelines' API, with KFP's client: upload, start a run, and follow it.

The client finds host and credentials: KF_PIPELINES_ENDPOINT and similar variables, the service
account of a pod, kubectl's configuration, ~/.config/kfp/context.json.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.platforms.kubeflow_connection import (
    ENDPOINT,
    CredentialsRefused,
    connect,
    translate_errors,
)
from pipeline.platforms.platform import ApiObject, PlatformError, RunNow, Say, Submission, TaskNow
from pipeline.platforms.platform import RunState as State
from pipeline.platforms.server_text import printable
from pipeline.report.progress import Status

UI_ENDPOINT = "KF_PIPELINES_UI_ENDPOINT"
_EXPERIMENTS = ("KF_PIPELINES_OVERRIDE_EXPERIMENT_NAME", "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME")
_EQUALS = 1  # in the API's filters
_ID = re.compile(r"[\w.-]{1,200}")
_STATES: Mapping[str, Status] = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "PAUSED": "running",
    "CANCELING": "running",
    "SUCCEEDED": "done",
    "SKIPPED": "waiting",  # an earlier node failed; of a cached node only the container is skipped
    "FAILED": "failed",
    "CANCELED": "interrupted",
}
_RUN_STATES: Mapping[str, State] = {
    "SUCCEEDED": "done",
    "SKIPPED": "done",
    "FAILED": "failed",
    "CANCELED": "stopped",
}


def submit(submission: Submission, say: Say) -> KubeflowRun:
    """Upload a pipeline, or a new version of a known one, and start a run of it.

    The name of a version is the digest of the file, so the same file is uploaded once.

    Raises:
        PlatformError: There is no server, or it refuses the pipeline.
    """
    connection = KubeflowConnection(submission.timeout)
    pipeline, version = connection.upload(submission, say)
    return connection.start_run(submission, pipeline, version, say)


@dataclass(frozen=True)
class KubeflowRun:
    """A run of Kubeflow Pipelines."""

    connection: KubeflowConnection
    run_id: str

    @property
    def page(self) -> str:
        """The address of the run's page."""
        return page_of(f"runs/details/{self.run_id}")

    @property
    def stop(self) -> str:
        """A command that stops the run."""
        if not os.environ.get(ENDPOINT):
            return "Terminate, on its page"  # only the client does not find it: see connect
        return f"python -c 'import kfp; kfp.Client().terminate_run(\"{self.run_id}\")'"

    def now(self) -> RunNow:
        """Request the state of the run from the server."""
        with translate_errors("look at the run"):
            run = self.connection.ask("look at the run", lambda client: client.get_run(self.run_id))
            details = (run.run_details and run.run_details.task_details) or []
            return RunNow(
                _RUN_STATES.get(run.state or "", "running"),
                _tasks(details),
                message=_message(run.error) or _last_message(run.state_history),
            )


class KubeflowConnection:
    """KFP's client with a connection and translated errors."""

    def __init__(self, timeout: float) -> None:
        """Connect; the timeout in seconds limits each request."""
        self._timeout = timeout
        self._client = connect(self._timeout)

    @property
    def namespace(self) -> str | None:
        """The user's namespace on a cluster with several users, or None."""
        return self._client.get_user_namespace() or None

    def ask(self, action: str, call: Callable[[ApiObject], ApiObject]) -> ApiObject:
        """Call the client; if its token has expired, call a new one.

        Args:
            action: The action, as in "cannot start a run".
            call: Takes KFP's client.

        Raises:
            PlatformError: The server refuses, or does not answer.
        """
        try:
            with translate_errors(action):
                return call(self._client)
        except CredentialsRefused:
            self._client = connect(self._timeout)
            with translate_errors(action):
                return call(self._client)

    def upload(self, submission: Submission, say: Say) -> tuple[str, str]:
        """Upload a file unless it exists; return the ids of the pipeline and its version."""
        name = submission.name
        namespace = self.namespace
        found = self.ask(
            "look for the pipeline",
            lambda client: client.list_pipelines(filter=_named(name), namespace=namespace),
        )
        if not found.pipelines:
            made = self.ask(
                "upload the pipeline",
                lambda client: client.upload_pipeline(
                    str(submission.file),
                    pipeline_name=name,
                    description=f"Its first version is {submission.digest}.",
                    namespace=namespace,
                ),
            )
            pipeline = checked_id(made.pipeline_id, "the pipeline")
            say(f"Uploaded: pipeline {name}, new")
            return pipeline, _version_id(self._version(pipeline))
        pipeline = checked_id(found.pipelines[0].pipeline_id, "the pipeline")
        # The server names a first version like the pipeline.
        is_first = submission.digest in (found.pipelines[0].description or "")
        version = name if is_first else f"{name} {submission.digest}"
        known = self._version(pipeline, version)
        if known is not None:
            say(f"Pipeline {name} has this file already")
            return pipeline, _version_id(known)
        made = self.ask(
            "upload a version of the pipeline",
            lambda client: client.upload_pipeline_version(
                str(submission.file), pipeline_version_name=version, pipeline_id=pipeline
            ),
        )
        say(f"Uploaded: pipeline {name}, version {version}")
        return pipeline, _version_id(made)

    def experiment(self, submission: Submission) -> tuple[str, str]:
        """Find or create the experiment; return its name and its id."""
        variables = (os.environ.get(name) for name in _EXPERIMENTS)
        name = submission.experiment or next(filter(None, variables), "Default")
        group = self.ask(
            f"find or make the experiment {name}", lambda client: client.create_experiment(name)
        )
        return name, checked_id(group.experiment_id, "the experiment")

    def start_run(
        self, submission: Submission, pipeline: str, version: str, say: Say
    ) -> KubeflowRun:
        """Start a run of a version."""
        experiment, experiment_id = self.experiment(submission)
        name = submission.run_name or f"{submission.name} {time.strftime('%Y-%m-%d %H-%M-%S')}"
        made = self.ask(
            "start a run",
            lambda client: client.run_pipeline(
                experiment_id,
                name,
                params=dict(submission.parameters),
                pipeline_id=pipeline,
                version_id=version,
                # KFP 2.5 to 2.17 ignores the file's defaultPipelineRoot (driver: RootDAG).
                pipeline_root=submission.pipeline_root or None,
                service_account=submission.profile.service_account if submission.profile else None,
            ),
        )
        run_id = checked_id(made.run_id, "the run")
        say(f"Started: run {name!r} in experiment {experiment}")
        return KubeflowRun(self, run_id)

    def _version(self, pipeline: str, name: str | None = None) -> ApiObject:
        """Return the version of that name, or the latest one; None if there is none."""
        found = self.ask(
            "look for versions of the pipeline",
            lambda client: client.list_pipeline_versions(
                pipeline, filter=_named(name) if name else None, sort_by="created_at desc"
            ),
        )
        return found.pipeline_versions[0] if found.pipeline_versions else None


def page_of(fragment: str) -> str:
    """Return the address of a page of Kubeflow, without credentials."""
    place = os.environ.get(UI_ENDPOINT) or os.environ.get(ENDPOINT)
    if not place:
        return f"/#/{fragment} of Kubeflow's pages, which {UI_ENDPOINT} names"
    place = place if place.startswith("http") else f"http://{place}"
    return printable(f"{place.rstrip('/')}/#/{fragment}")


def checked_id(found: object, owner: str) -> str:
    """Return an id of the server, which becomes part of addresses and commands.

    Raises:
        PlatformError: The answer has no id, or an invalid one.
    """
    if isinstance(found, str) and _ID.fullmatch(found):
        return found
    raise PlatformError(
        f"the server's answer has no valid id of {owner} ({str(found)[:80]!r}): it is not Kubeflow "
        "Pipelines 2.5 or newer, or a proxy changes its answers."
    )


def _version_id(version: ApiObject) -> str:
    return checked_id(version and version.pipeline_version_id, "the pipeline's version")


def _named(name: str) -> str:
    return json.dumps(
        {"predicates": [{"operation": _EQUALS, "key": "display_name", "stringValue": name}]}
    )


def _tasks(details: list[ApiObject]) -> dict[str, TaskNow]:
    """Return nodes by name, including workflow nodes that are not tasks: drivers, executors."""
    pods = {_number(detail.pod_name): detail for detail in details}
    found = {}
    for detail in details:
        status = _STATES.get(detail.state or "", "waiting")
        children = [pods.get(_number(child.pod_name)) for child in detail.child_tasks or []]
        if status == "done" and any(c is not None and c.state == "SKIPPED" for c in children):
            status = "cached"  # its driver found the outputs
        message = _message(detail.error) or _last_message(detail.state_history)
        failed = [c.pod_name for c in children if c is not None and c.state == "FAILED"]
        if status == "failed" and failed:
            pod = shlex.quote(failed[-1] or "POD")
            message = f"{message}\nIts log: kubectl logs {pod} --container main".strip()
        found[detail.display_name] = TaskNow(
            status, _seconds(detail.start_time), _seconds(detail.end_time), message=message
        )
    return found


def _number(pod: str | None) -> str:
    """Return the common part of the names of a node and of its pod."""
    return (pod or "").rpartition("-")[2]


def _seconds(at: datetime.datetime | None) -> float | None:
    """Return seconds since 1970; the server writes year 1 for events that have not happened."""
    return at.timestamp() if at is not None and at.year > 1970 else None


def _message(error: ApiObject) -> str:
    return (error and error.message) or ""


def _last_message(history: list[ApiObject] | None) -> str:
    return next((_message(each.error) for each in reversed(history or []) if each.error), "")
