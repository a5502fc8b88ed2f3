"""Create a TFJob in a cluster, follow it with the logs of its pods, and delete it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.common.json_types import JsonObject
from pipeline.targets.tfjob import API_GROUP, API_VERSION, CONTAINER, PLURAL
from trainer_module.devices.cluster import EXIT_WORKER_LOST
from trainer_module.devices.local_cluster import describe_end

_JOB_LABEL = "training.kubeflow.org/job-name"  # the operator's, of a job's pods
TASK_LABEL = "tfx-largebatch/task"
"""Ours: the same for each attempt of a node of a run."""

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NOT_FOUND = 404
_FIXES = {
    403: "; the run's service account needs a role for it: see docs/cluster-workers.md, On "
    "Kubeflow",
    _NOT_FOUND: "; is the Training Operator (kubeflow.org/v1), 1.7 to 1.9, installed? Without it a "
    "cluster has no TFJobs",
}
_SECONDS_TO_DELETE = 300.0
# An API server that restarts is back earlier.
_SECONDS_WITHOUT_ANSWER = 300.0


class JobError(Exception):
    """The job cannot be run; the message says what to do."""

    status = 0
    """The API server's status."""


class Cluster(NamedTuple):
    """The cluster that this process runs in."""

    api: Any  # a `kubernetes.client.ApiClient`
    namespace: str
    pod: str  # the launcher's

    @classmethod
    def of_this_pod(cls, variable: str = "KFP_POD_NAME") -> Cluster | None:
        """Return the cluster of this process; None outside a cluster (a replay).

        `variable` has the name of the launcher's pod; Kubeflow Pipelines sets KFP_POD_NAME.
        """
        pod = os.environ.get(variable)
        if not (pod and os.environ.get("KUBERNETES_SERVICE_HOST") and _SERVICE_ACCOUNT.exists()):
            return None
        from kubernetes import client, config

        config.load_incluster_config()
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        return cls(client.ApiClient(), namespace, pod)


class JobClient:
    """The requests for one job, with the Kubernetes client."""

    def __init__(
        self, cluster: Cluster, *, interval: float = 5.0, say: Callable[[str], None] = print
    ) -> None:
        """Create a client without sending a request."""
        from kubernetes import client

        self._cluster, self._interval, self._say = cluster, interval, say
        self._core = client.CoreV1Api(cluster.api)
        self._custom = client.CustomObjectsApi(cluster.api)
        self._place = (API_GROUP, API_VERSION, cluster.namespace, PLURAL)
        self._states: dict[str, str] = {}
        self._shown: dict[str, tuple[str, float]] = {}  # pod -> time of its last line, last reading

    def launcher(self) -> JsonObject:
        """Return the `owner` reference and `service_account` that the job gets from this pod."""
        with _translate_errors("get pods", self._cluster.namespace):
            pod = self._core.read_namespaced_pod(self._cluster.pod, self._cluster.namespace)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name}
        return {
            "owner": {**owner, "uid": pod.metadata.uid},
            "service_account": pod.spec.service_account_name,
        }

    def delete_earlier(self, task: str) -> None:
        """Delete jobs of earlier attempts, which would write to the same places."""
        until = time.monotonic() + _SECONDS_TO_DELETE
        deleted: set[str] = set()
        while True:
            with _translate_errors("list tfjobs", self._cluster.namespace):
                jobs = self._custom.list_namespaced_custom_object(
                    *self._place, label_selector=f"{TASK_LABEL}={task}"
                )
            names = [job["metadata"]["name"] for job in jobs["items"]]
            if not names:
                return
            if time.monotonic() > until:
                raise JobError(
                    f"TFJob {names[0]} of an earlier attempt is still there after "
                    f"{_SECONDS_TO_DELETE:g} s; run: kubectl delete tfjob {names[0]} --namespace "
                    f"{self._cluster.namespace}"
                )
            for name in set(names) - deleted:
                self._say(f"TFJob {name} of an earlier attempt is deleted first")
                self.delete(name)
                deleted.add(name)
            time.sleep(self._interval)

    def create(self, manifest: JsonObject) -> str:
        """Create the job and return its name."""
        with _translate_errors("create tfjobs", self._cluster.namespace):
            job = self._custom.create_namespaced_custom_object(*self._place, manifest)
        name = job["metadata"]["name"]
        self._say(f"TFJob {self._cluster.namespace}/{name} created")
        return name

    def delete(self, name: str) -> None:
        """Delete the job, if it exists, and then its pods, which get SIGTERM."""
        try:
            with _translate_errors("delete tfjobs", self._cluster.namespace):
                self._custom.delete_namespaced_custom_object(
                    *self._place, name, propagation_policy="Foreground"
                )
        except JobError as error:
            if error.status != _NOT_FOUND:
                raise

    def follow(self, name: str) -> int:
        """Print the states and logs of the pods until the job ends; return its exit code."""
        answered = time.monotonic()
        while True:
            try:
                with _translate_errors("get tfjobs", self._cluster.namespace):
                    job = self._custom.get_namespaced_custom_object(*self._place, name)
                    pods = self._core.list_namespaced_pod(
                        self._cluster.namespace, label_selector=f"{_JOB_LABEL}={name}"
                    ).items
            except ConnectionError as error:
                if time.monotonic() - answered > _SECONDS_WITHOUT_ANSWER:
                    raise JobError(f"the API server does not answer: {error}") from None
                time.sleep(self._interval)
                continue
            answered = time.monotonic()
            for pod in pods:
                self._show(pod, pod.metadata.name.removeprefix(f"{name}-"))
            conditions = {
                each["type"]: each
                for each in job.get("status", {}).get("conditions", [])
                if each["status"] == "True"
            }
            if "Succeeded" in conditions:
                self._say(f"TFJob {name} succeeded")
                return 0
            if "Failed" in conditions:
                code, reason = _failure(name, pods, conditions["Failed"])
                self._say(f"TFJob {name} failed: {reason}")
                return code
            time.sleep(self._interval)

    def _show(self, pod: Any, short: str) -> None:
        """Print a pod's state if it is another one, and the new lines of its log."""
        name, state = pod.metadata.name, _state(pod)
        if pod.status.phase in ("Running", "Succeeded", "Failed"):
            self._show_log(name, short)
        if self._states.get(name) != state:
            self._states[name] = state
            self._say(f"[{short}] {state}")

    def _show_log(self, pod: str, short: str) -> None:
        import urllib3
        from kubernetes.client import ApiException

        last, read = self._shown.get(pod, ("", 0.0))
        now = time.monotonic()
        # The server counts whole seconds; lines that come twice are known by their times.
        since = {"since_seconds": int(now - read) + 2} if read else {}
        try:
            # The client would take a line of JSON for an answer of the API.
            text = self._core.read_namespaced_pod_log(
                *(pod, self._cluster.namespace),
                container=CONTAINER,
                timestamps=True,
                _preload_content=False,
                **since,
            ).data.decode(errors="replace")
        except (ApiException, urllib3.exceptions.HTTPError):
            return  # not started yet, or a connection error: the next reading gets it all
        for line in text.split("\n"):
            at, _, words = line.rstrip("\r").partition(" ")  # of fixed width
            if at > last:
                last = at
                self._say(f"[{short}] {words}")
        self._shown[pod] = last, now


def _failure(job: str, pods: list[Any], condition: JsonObject) -> tuple[int, str]:
    """Return the end of the first worker that failed for another reason than a lost worker."""
    ends = []
    for pod in pods:
        for status in pod.status.container_statuses or []:
            if (end := status.state and status.state.terminated) and end.exit_code:
                lost = end.exit_code == EXIT_WORKER_LOST
                ends.append((lost, str(end.finished_at), pod.metadata.name, end))
    if not ends:
        return 1, condition.get("message") or condition.get("reason", "")
    _, _, pod, end = min(ends, key=lambda each: each[:3])
    why = f" ({end.reason})" if end.reason and end.reason != "Error" else ""
    code = int(end.exit_code)
    return code, f"{pod.removeprefix(f'{job}-')} {describe_end(code)}{why}"


def _state(pod: Any) -> str:
    """Return a pod's phase, and the reason if it does not run."""
    phase = str(pod.status.phase)
    for status in pod.status.container_statuses or []:
        if (waiting := status.state and status.state.waiting) and waiting.reason:
            return f"{phase}, {waiting.reason}" + (f": {waiting.message}" * bool(waiting.message))
        if (end := status.state and status.state.terminated) is not None:
            return describe_end(int(end.exit_code)) + (f", {end.reason}" if end.reason else "")
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{phase}, {condition.reason}: {condition.message}"
    return phase


def watch_launcher(
    cluster: Cluster, on_gone: Callable[[str], None], *, interval: float = 30.0
) -> None:
    """Wait until the launcher's pod has ended, and call a function; for a thread of the chief.

    A terminated run kills the launcher at once and keeps its pod for about a day. Without this
    watch, the job would continue to train until then. It ends early if it is not permitted.
    """
    from kubernetes import client

    core = client.CoreV1Api(cluster.api)
    while True:
        try:
            with _translate_errors("get pods", cluster.namespace):
                phase = core.read_namespaced_pod(cluster.pod, cluster.namespace).status.phase
        except ConnectionError:
            phase = None
        except JobError as error:
            if error.status != _NOT_FOUND:
                print(f"{error}: this job does not end with its launcher", flush=True)
                return
            phase = "not there"
        if phase in ("Succeeded", "Failed", "not there"):
            on_gone(f"the launcher's pod {cluster.pod} is {phase}")
            return
        time.sleep(interval)


@contextlib.contextmanager
def _translate_errors(request: str, namespace: str) -> Iterator[None]:
    """Convert the client's errors into a JobError with the fix, or a transient ConnectionError."""
    import urllib3
    from kubernetes.client import ApiException

    try:
        yield
    except urllib3.exceptions.HTTPError as error:
        raise ConnectionError(str(error)) from None
    except ApiException as error:
        status = error.status or 0
        if status == 0 or status >= 500 or status == 429:
            raise ConnectionError(f"{status} {error.reason}") from None
        fix = _FIXES.get(status) or (f": {error.body}" if error.body else "")
        refusal = JobError(
            f"cannot {request} in namespace {namespace}: {status} {error.reason}{fix}"
        )
        refusal.status = status
        raise refusal from None
