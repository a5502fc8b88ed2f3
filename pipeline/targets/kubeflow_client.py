"""Kubeflow Pipelines' API, by KFP's own client: upload, run, and what became of it.

Host and credentials are the client's own business: KF_PIPELINES_ENDPOINT and its like, the service
account of a pod, kubectl's configuration, ~/.config/kfp/context.json.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.report.progress import Status
from pipeline.targets.platform import (
    PlatformError,
    RunNow,
    Submission,
    TaskNow,
    without_noise,
)
from pipeline.targets.platform import RunState as State

ENDPOINT = "KF_PIPELINES_ENDPOINT"
UI_ENDPOINT = "KF_PIPELINES_UI_ENDPOINT"
_EXPERIMENTS = ("KF_PIPELINES_OVERRIDE_EXPERIMENT_NAME", "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME")
_EQUALS = 1  # of the API's filters
_LONGEST_WORDS = 600

_NO_ENDPOINT = f"""\
no Kubeflow Pipelines is known on this machine. Do one of
  export {ENDPOINT}=https://host/pipeline      # what its pages are at
  kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80 & export {ENDPOINT}=http://localhost:8080
  kubectl config use-context NAME              # it is reached through Kubernetes then
or submit from a pod of the cluster."""

_CREDENTIALS = (
    "Its client takes them from KF_PIPELINES_IAP_OAUTH2_CLIENT_ID (Google's proxy), from "
    "~/.config/kfp/context.json (client_authentication_cookie, or "
    "client_authentication_header_name and _value), or in a pod from the token that "
    "KF_PIPELINES_SA_TOKEN_PATH names."
)

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
        self._client = self._connected()

    def ask(self, doing: str, call: Callable[[Any], Any]) -> Any:
        """Calls the client; once more by a new one where its token has expired meanwhile."""
        try:
            with _in_words(doing):
                return call(self._client)
        except _Refused:
            self._client = self._connected()
            with _in_words(doing):
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

    def _connected(self) -> Any:
        try:
            import kfp
        except ImportError as error:
            raise PlatformError(
                f"submit needs KFP's client ({error}): pip install 'tfx-largebatch[pipeline]'."
            ) from None
        if not _endpoint_is_known():
            raise PlatformError(_NO_ENDPOINT)
        timeout = self._timeout

        class Client(kfp.Client):
            """KFP's, asking for its server's health once: it does so 5 times in 25 seconds."""

            def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
                api = self._healthz_api
                _guard(api.api_client, timeout)
                # Called get_healthz before kfp-server-api 2.1.
                name = "healthz_service_get_healthz"
                return getattr(api, name if hasattr(api, name) else "get_healthz")()

        with _in_words("connect"):
            client = Client()
        _guard(client._run_api.api_client, timeout)
        return client


class _Refused(PlatformError):
    """Credentials are not taken, or not any more."""


def _guard(api: Any, timeout: float) -> None:
    """Lets no request of the client wait for ever, and takes no login page for an answer."""
    rest, settings = api.rest_client, api.configuration
    ask = rest.request
    if hasattr(ask, "guarded"):
        return
    if (refresh := settings.refresh_api_key_hook) is not None:
        host = settings.host

        def refresh_token(configuration: Any) -> None:
            # Where kubectl's configuration has a token, this sets host and hook anew, too: the
            # host to that of Kubernetes, without the way to Kubeflow that KFP's client had added.
            refresh(configuration)
            configuration.host, configuration.refresh_api_key_hook = host, refresh_token

        settings.refresh_api_key_hook = refresh_token

    def request(method: str, url: str, **options: Any) -> Any:
        options["_request_timeout"] = options.get("_request_timeout") or (timeout, timeout)
        answer = ask(method, url, **options)
        try:
            json.loads(answer.data or b"{}")
        except ValueError:
            said = " ".join(re.sub(rb"<[^>]*>", b" ", answer.data).decode(errors="replace").split())
            raise PlatformError(
                f"{url.partition('?')[0]} answers with no JSON but {said[:80]!r}: a login page, or "
                f"not Kubeflow Pipelines 2. {_host_from()} {_CREDENTIALS}"
            ) from None
        return answer

    request.guarded = True  # pyright: ignore[reportFunctionMemberAccess]
    rest.request = request


@contextlib.contextmanager
def _in_words(doing: str) -> Iterator[None]:
    """Takes what the client prints, and turns what it raises into words."""
    import kfp_server_api
    import urllib3

    try:
        with contextlib.redirect_stdout(io.StringIO()), without_noise():
            yield
    except kfp_server_api.ApiException as error:
        raise _refusal(doing, error) from None
    except urllib3.exceptions.HTTPError as error:
        reason = getattr(error, "reason", None) or error
        raise PlatformError(
            f"cannot {doing}: no answer ({_one_line(str(reason))}). {_host_from()} "
            "It answers at /apis/v2beta1/healthz below that, if it is reached.",
            passes=True,
        ) from None
    except (
        ValueError,
        TypeError,
        OSError,
    ) as error:  # of the client: two of a name, a token's file
        raise PlatformError(f"cannot {doing}: {_one_line(str(error))}") from None


def _refusal(doing: str, error: Any) -> PlatformError:
    """What a status of HTTP means here."""
    status, said = error.status, _said(error)
    told = f"cannot {doing}: {status} {error.reason or ''}".rstrip() + (f": {said}" if said else "")
    if status in (401, 403):
        return _Refused(
            f"{told}. Kubeflow does not take your credentials, or they may not do this. "
            f"{_CREDENTIALS}"
        )
    if status == 404:
        return PlatformError(
            f"{told}. {_host_from()} It has to be the address of Kubeflow Pipelines 2 "
            "itself, whose API answers at /apis/v2beta1/healthz below it."
        )
    if status == 409:
        return PlatformError(
            f"{told}. The name is taken, perhaps in another namespace or by somebody at the same "
            "time: submit again, or give the pipeline another name."
        )
    if status >= 500 or status == 429:
        return PlatformError(
            f"{told}. The server's own failure: try again, and look into its log "
            "(kubectl logs -n kubeflow deployment/ml-pipeline).",
            passes=True,
        )
    if "namespace" in said.lower():
        told += (
            '. Of several users, yours is named by ~/.config/kfp/context.json: {"namespace": ...}'
        )
    return PlatformError(f"{told}.")


def _said(error: Any) -> str:
    """The words in an answer's body."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else error.body
    try:
        found = json.loads(body or "{}")
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return ""
    words = (found.get(key) for key in ("message", "error_message", "error"))
    return _one_line(next((w for w in words if isinstance(w, str) and w), "")).rstrip(".")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_WORDS]


def _endpoint_is_known() -> bool:
    """Whether KFP's client finds a host; without one it asks localhost."""
    files = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    return bool(
        os.environ.get(ENDPOINT)
        or os.environ.get("KUBERNETES_SERVICE_HOST")
        or any(Path(file).is_file() for file in files.split(os.pathsep))
    )


def _host_from() -> str:
    if place := os.environ.get(ENDPOINT):
        return f"{ENDPOINT} is {place}."
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return f"{ENDPOINT} is not set: asked was the service ml-pipeline of this cluster."
    return f"{ENDPOINT} is not set: asked was the cluster of kubectl's configuration."


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
