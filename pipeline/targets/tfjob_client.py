"""Create a TFJob in a cluster, follow it with the logs of its pods, and delete it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.common.json_types import JsonObject
from pipeline.targets.spec_types import Manifest
from pipeline.targets.tfjob import API_GROUP, API_VERSION, CONTAINER, PLURAL
from trainer_module.devices.cluster import EXIT_WORKER_LOST
from trainer_module.devices.local_cluster import describe_end

_JOB_LABEL = "training.kubeflow.org/job-name"  # the operator's, of a job's pods
TASK_LABEL = "tfx-largebatch/task"
"""Ours: the same for each attempt of a node of a run."""

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NOT_FOUND, _FORBIDDEN = 404, 403
_SECONDS_TO_DELETE = 300.0
# An API server that restarts is back earlier.
_SECONDS_WITHOUT_ANSWER = 300.0


class JobError(Exception):
    """The job cannot be run; the message says what to do."""


class Result(NamedTuple):
    """The result of a job.

    Attributes:
        code: Exit code for the launcher; 0 if the job succeeded.
        message: The message to print.
    """

    code: int
    message: str


class Cluster(NamedTuple):
    """The cluster that this process runs in.

    Attributes:
        api: A `kubernetes.client.ApiClient`.
        namespace: Namespace of this pod.
        pod: Name of the launcher's pod.
    """

    api: Any
    namespace: str
    pod: str

    @classmethod
    def of_this_pod(cls, variable: str = "KFP_POD_NAME") -> Cluster | None:
        """Return the cluster of this process; None outside a cluster (a replay).

        Args:
            variable: Variable with the name of the launcher's pod; Kubeflow Pipelines sets
                KFP_POD_NAME.
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
        with _translate_errors("list tfjobs", self._cluster.namespace):
            found = self._custom.list_namespaced_custom_object(
                *self._place, label_selector=f"{TASK_LABEL}={task}"
            )
        for job in found["items"]:
            name = job["metadata"]["name"]
            self._say(f"TFJob {name} of an earlier attempt is deleted first")
            self.delete(name)
            self._wait_until_gone(name)

    def create(self, manifest: Manifest) -> str:
        """Create the job and return its name."""
        with _translate_errors("create tfjobs", self._cluster.namespace):
            job = self._custom.create_namespaced_custom_object(*self._place, manifest)
        name = job["metadata"]["name"]
        self._say(f"TFJob {self._cluster.namespace}/{name} created")
        return name

    def delete(self, name: str) -> None:
        """Delete the job and then its pods, which get SIGTERM."""
        with _translate_errors("delete tfjobs", self._cluster.namespace, missing_is_fine=True):
            self._custom.delete_namespaced_custom_object(
                *self._place, name, propagation_policy="Foreground"
            )

    def follow(self, name: str) -> Result:
        """Print the states and logs of the pods until the job ends; return its result.

        Raises:
            JobError: The API server does not answer, or refuses.
        """
        answered = time.monotonic()
        while True:
            try:
                with _translate_errors("get tfjobs", self._cluster.namespace):
                    job = self._custom.get_namespaced_custom_object(*self._place, name)
                    pods = self._pods(name)
                answered = time.monotonic()
            except ConnectionError as error:
                if time.monotonic() - answered > _SECONDS_WITHOUT_ANSWER:
                    raise JobError(f"the API server does not answer: {error}") from None
                time.sleep(self._interval)
                continue
            for pod in pods:
                self._show(name, pod)
            conditions = {
                each["type"]: each
                for each in job.get("status", {}).get("conditions", [])
                if each["status"] == "True"
            }
            if "Succeeded" in conditions or "Failed" in conditions:
                break
            time.sleep(self._interval)
        if "Succeeded" in conditions:
            return Result(0, f"TFJob {name} succeeded")
        reason = conditions["Failed"].get("message") or conditions["Failed"].get("reason", "")
        return self._failure(name, reason)

    def _pods(self, name: str) -> list[Any]:
        selector = f"{_JOB_LABEL}={name}"
        return self._core.list_namespaced_pod(
            self._cluster.namespace, label_selector=selector
        ).items

    def _show(self, job: str, pod: Any) -> None:
        """Print a pod's state if it is another one, and the new lines of its log."""
        full = pod.metadata.name
        short, state = full.removeprefix(f"{job}-"), _state(pod)
        if pod.status.phase in ("Running", "Succeeded", "Failed"):
            self._show_log(full, short)
        if self._states.get(full) != state:
            self._states[full] = state
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

    def _failure(self, name: str, reason: str) -> Result:
        ended, pods = [], []
        with (
            contextlib.suppress(JobError, ConnectionError),  # the failure itself is known already
            _translate_errors("list pods", self._cluster.namespace),
        ):
            pods = self._pods(name)
        for pod in pods:
            for status in pod.status.container_statuses or []:
                if (end := status.state and status.state.terminated) and end.exit_code:
                    lost = end.exit_code == EXIT_WORKER_LOST
                    ended.append((lost, str(end.finished_at), pod.metadata.name, end))
        if not ended:
            return Result(1, f"TFJob {name} failed: {reason}")
        _, _, pod, end = min(ended, key=lambda each: each[:3])
        how = f" ({end.reason})" if end.reason and end.reason != "Error" else ""
        code = int(end.exit_code)
        return Result(
            code,
            f"TFJob {name} failed: {pod.removeprefix(f'{name}-')} {describe_end(code)}{how}",
        )

    def _wait_until_gone(self, name: str) -> None:
        until = time.monotonic() + _SECONDS_TO_DELETE
        while time.monotonic() < until:
            with _translate_errors("get tfjobs", self._cluster.namespace, missing_is_fine=True):
                self._custom.get_namespaced_custom_object(*self._place, name)
                time.sleep(self._interval)
                continue
            return
        raise JobError(
            f"TFJob {name} of an earlier attempt is still there after {_SECONDS_TO_DELETE:g} s; "
            f"run: kubectl delete tfjob {name} --namespace {self._cluster.namespace}"
        )


def _state(pod: Any) -> str:
    """Return a pod's phase, and the reason if it does not run."""
    for status in pod.status.container_statuses or []:
        if (waiting := status.state and status.state.waiting) and waiting.reason:
            message = f": {waiting.message}" if waiting.message else ""
            return f"{pod.status.phase}, {waiting.reason}{message}"
        if (end := status.state and status.state.terminated) is not None:
            reason = f", {end.reason}" if end.reason else ""
            return f"{describe_end(int(end.exit_code))}{reason}"
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{pod.status.phase}, {condition.reason}: {condition.message}"
    return str(pod.status.phase)


class LauncherWatch(threading.Thread):
    """A thread that watches the launcher, and calls a function once when it has ended.

    A terminated run kills the launcher at once and keeps its pod for about a day. Without this
    thread, the job would continue to train until then.
    """

    def __init__(
        self, cluster: Cluster, on_gone: Callable[[str], None], *, interval: float = 30.0
    ) -> None:
        """Create a thread that is not started."""
        from kubernetes import client

        super().__init__(daemon=True)
        self._core = client.CoreV1Api(cluster.api)
        self._cluster, self._on_gone, self._interval = cluster, on_gone, interval

    def run(self) -> None:
        """Watch until the launcher has ended, or until the watch is not permitted."""
        namespace, pod = self._cluster.namespace, self._cluster.pod
        while True:
            try:
                with _translate_errors("get pods", namespace):
                    phase = self._core.read_namespaced_pod(pod, namespace).status.phase
            except ConnectionError:
                phase = None
            except JobError as error:
                if f": {_NOT_FOUND} " not in str(error):
                    print(f"{error}: this job does not end with its launcher", flush=True)
                    return
                phase = "not there"
            if phase in ("Succeeded", "Failed", "not there"):
                self._on_gone(f"the launcher's pod {pod} is {phase}")
                return
            time.sleep(self._interval)


@contextlib.contextmanager
def _translate_errors(
    request: str, namespace: str, *, missing_is_fine: bool = False
) -> Iterator[None]:
    """Convert the client's errors into a JobError with the fix, or a transient ConnectionError."""
    import urllib3
    from kubernetes.client import ApiException

    try:
        yield
    except urllib3.exceptions.HTTPError as error:
        raise ConnectionError(str(error)) from None
    except ApiException as error:
        status = error.status or 0
        if status == _NOT_FOUND and missing_is_fine:
            return
        if status == 0 or status >= 500 or status == 429:
            raise ConnectionError(f"{status} {error.reason}") from None
        words = f"cannot {request} in namespace {namespace}: {status} {error.reason}"
        if status == _FORBIDDEN:
            words += (
                "; the run's service account needs a role for it: see docs/cluster.md, Several "
                "workers on Kubeflow"
            )
        elif status == _NOT_FOUND and "create" in request:
            words += (
                "; this cluster has no TFJobs: install the Training Operator "
                "(kubeflow.org/v1), 1.7 to 1.9"
            )
        elif error.body:
            words += f": {error.body}"
        raise JobError(words) from None
