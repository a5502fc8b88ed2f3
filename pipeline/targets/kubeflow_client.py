"""Kubeflow Pipelines' API, by KFP's own client: upload, run, and what became of it.

Host and credentials are the client's own business: KF_PIPELINES_ENDPOINT and its like, the service
account of a pod, kubectl's configuration, ~/.config/kfp/context.json.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from pipeline.report.progress import Status
from pipeline.targets.kubeflow_connection import ENDPOINT, Refused, connected, in_words
from pipeline.targets.platform import RunNow, Submission, TaskNow
from pipeline.targets.platform import RunState as State

UI_ENDPOINT = "KF_PIPELINES_UI_ENDPOINT"
_EXPERIMENTS = ("KF_PIPELINES_OVERRIDE_EXPERIMENT_NAME", "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME")
_EQUALS = 1  # of the API's filters
_STATES: Mapping[str, Status] = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "PAUSED": "running",
    "CANCELING": "running",
    "SUCCEEDED": "done",
    "SKIPPED": "waiting",  # one before it failed; of a cached node only the container is skipped
    "FAILED": "failed",
    "CANCELED": "interrupted",
}
_RUN_STATES: Mapping[str, State] = {
    "SUCCEEDED": "done",
    "SKIPPED": "done",
    "FAILED": "failed",
    "CANCELED": "stopped",
}


def submit(it: Submission, say: Callable[[str], None]) -> KubeflowRun:
    """Uploads a pipeline, or a new version of one that is there, and starts a run.

    A version is named by the digest of the file: the same file is uploaded once.

    Args:
        it: the pipeline, and how it is to run.
        say: told what has been done.

    Raises:
        PlatformError: there is no server, or it does not take the pipeline.
    """
    platform = _Kubeflow(it.timeout)
    pipeline, version, told = platform.version(it)
    say(told)
    return platform.run(it, pipeline, version, say)


class KubeflowRun:
    """A run of Kubeflow Pipelines."""

    def __init__(self, platform: _Kubeflow, run_id: str) -> None:
        """Takes the connection and the run's id."""
        self._platform = platform
        self.run_id = run_id

    @property
    def page(self) -> str:
        """Where a person looks at it."""
        place = os.environ.get(UI_ENDPOINT) or os.environ.get(ENDPOINT)
        if not place:
            return f"/#/runs/details/{self.run_id} of Kubeflow's pages, which {UI_ENDPOINT} names"
        place = place if place.startswith("http") else f"http://{place}"
        return f"{place.rstrip('/')}/#/runs/details/{self.run_id}"

    @property
    def stop(self) -> str:
        """A command that ends it."""
        if not os.environ.get(ENDPOINT):
            return "Terminate, on its page"  # the client alone does not find it: see _guard
        return f"python -c 'import kfp; kfp.Client().terminate_run(\"{self.run_id}\")'"

    def now(self) -> RunNow:
        """Asks the server."""
        run = self._platform.ask("look at the run", lambda client: client.get_run(self.run_id))
        details = (run.run_details and run.run_details.task_details) or []
        return RunNow(
            _RUN_STATES.get(run.state or "", "running"),
            _tasks(details),
            _message(run.error) or _last_words(run.state_history),
        )


class _Kubeflow:
    """The client, connected; its errors in words."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._client = connected(self._timeout)

    def ask(self, doing: str, call: Callable[[Any], Any]) -> Any:
        """Calls the client; once more by a new one where its token has expired meanwhile."""
        try:
            with in_words(doing):
                return call(self._client)
        except Refused:
            self._client = connected(self._timeout)
            with in_words(doing):
                return call(self._client)

    def version(self, it: Submission) -> tuple[str, str, str]:
        """Returns the ids of the pipeline and its version, and what was done."""
        namespace = self._client.get_user_namespace() or None
        found = self.ask(
            "look for the pipeline",
            lambda client: client.list_pipelines(filter=_named(it.name), namespace=namespace),
        )
        if not found.pipelines:
            made = self.ask(
                "upload the pipeline",
                lambda client: client.upload_pipeline(
                    str(it.file),
                    pipeline_name=it.name,
                    description=f"Its first version is {it.digest}.",
                    namespace=namespace,
                ),
            )
            first = self._versions(made.pipeline_id)
            return made.pipeline_id, first.pipeline_version_id, f"Uploaded: pipeline {it.name}, new"
        pipeline = found.pipelines[0].pipeline_id
        # The server calls a first version like the pipeline.
        is_first = it.digest in (found.pipelines[0].description or "")
        name = it.name if is_first else f"{it.name} {it.digest}"
        known = self._versions(pipeline, name)
        if known is not None:
            return pipeline, known.pipeline_version_id, f"Pipeline {it.name} has this file already"
        made = self.ask(
            "upload a version of the pipeline",
            lambda client: client.upload_pipeline_version(
                str(it.file), pipeline_version_name=name, pipeline_id=pipeline
            ),
        )
        return pipeline, made.pipeline_version_id, f"Uploaded: pipeline {it.name}, version {name}"

    def run(
        self, it: Submission, pipeline: str, version: str, say: Callable[[str], None]
    ) -> KubeflowRun:
        """Starts a run of a version."""
        variables = (os.environ.get(name) for name in _EXPERIMENTS)
        experiment = it.experiment or next(filter(None, variables), "Default")
        group = self.ask(
            f"find or make the experiment {experiment}",
            lambda client: client.create_experiment(experiment),
        )
        name = it.run_name or f"{it.name} {time.strftime('%Y-%m-%d %H-%M-%S')}"
        made = self.ask(
            "start a run",
            lambda client: client.run_pipeline(
                group.experiment_id,
                name,
                params=dict(it.parameters),
                pipeline_id=pipeline,
                version_id=version,
                service_account=it.profile.service_account if it.profile else None,
            ),
        )
        say(f"Started: run {name!r} in experiment {experiment}")
        return KubeflowRun(self, made.run_id)

    def _versions(self, pipeline: str, name: str | None = None) -> Any:
        """Returns the version of that name, or the latest one; None where there is none."""
        found = self.ask(
            "look for versions of the pipeline",
            lambda client: client.list_pipeline_versions(
                pipeline, filter=_named(name) if name else None, sort_by="created_at desc"
            ),
        )
        return found.pipeline_versions[0] if found.pipeline_versions else None


def _named(name: str) -> str:
    return json.dumps(
        {"predicates": [{"operation": _EQUALS, "key": "display_name", "stringValue": name}]}
    )


def _tasks(details: list[Any]) -> dict[str, TaskNow]:
    """Nodes by name; those of the workflow that are no tasks (drivers, executors) come along."""
    pods = {_number(detail.pod_name): detail for detail in details}
    found = {}
    for detail in details:
        status = _STATES.get(detail.state or "", "waiting")
        children = [pods.get(_number(child.pod_name)) for child in detail.child_tasks or []]
        if status == "done" and any(c is not None and c.state == "SKIPPED" for c in children):
            status = "cached"  # its driver found what it would make
        words = _message(detail.error) or _last_words(detail.state_history)
        failed = [c.pod_name for c in children if c is not None and c.state == "FAILED"]
        if status == "failed" and failed:
            words = f"{words}\nIts log: kubectl logs {failed[-1]} --container main".strip()
        found[detail.display_name] = TaskNow(
            status, _seconds(detail.start_time), _seconds(detail.end_time), words
        )
    return found


def _number(pod: str | None) -> str:
    """What the names of a node and of its pod have in common."""
    return (pod or "").rpartition("-")[2]


def _seconds(at: datetime.datetime | None) -> float | None:
    """Since 1970; what has not been is told as of year 1."""
    return at.timestamp() if at is not None and at.year > 1970 else None


def _message(error: Any) -> str:
    return (error and error.message) or ""


def _last_words(history: list[Any] | None) -> str:
    return next((_message(each.error) for each in reversed(history or []) if each.error), "")
