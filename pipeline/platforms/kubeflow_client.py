"""Kubeflow Pipelines' API, with KFP's client: upload, start a run, and follow it.

The client finds host and credentials: KF_PIPELINES_ENDPOINT and similar variables, the service
account of a pod, kubectl's configuration, ~/.config/kfp/context.json.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.platforms.platform import (
    CA_FILE,
    ApiObject,
    PlatformError,
    RunNow,
    Say,
    Submission,
    SubmittedRun,
    TaskNow,
    connection_error,
    error_text,
    one_line,
    printable,
    refusal,
    without_noise,
)
from pipeline.platforms.platform import RunState as State
from pipeline.report.progress import Status

_ENDPOINT = "KF_PIPELINES_ENDPOINT"
_UI_ENDPOINT = "KF_PIPELINES_UI_ENDPOINT"
_EXAMPLE = '{"namespace": "", "client_authentication_cookie": "..."}'
_NO_ENDPOINT = f"""\
no Kubeflow Pipelines is known on this machine. Do one of
  export {_ENDPOINT}=https://host/pipeline      # what its pages are at
  kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80 & export {_ENDPOINT}=http://localhost:8080
  kubectl config use-context NAME              # it is reached through Kubernetes then
or submit from a pod of the cluster."""
_CREDENTIALS = (
    "KFP's client takes credentials from KF_PIPELINES_IAP_OAUTH2_CLIENT_ID (Google's proxy), from "
    f"~/.config/kfp/context.json ({_EXAMPLE}; or client_authentication_header_name and "
    "client_authentication_header_value in place of the cookie), or in a pod from the token that "
    "KF_PIPELINES_SA_TOKEN_PATH names."
)
_NOT_KUBEFLOW = (
    "the answer is not one of Kubeflow Pipelines 2.5 or newer: a login page, or a proxy between"
)
_IF_BUSY = (
    "The server's own failure: try again, and look into its log (kubectl logs -n kubeflow "
    "deployment/ml-pipeline)."
)
_EXPERIMENTS = ("KF_PIPELINES_OVERRIDE_EXPERIMENT_NAME", "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME")
_EQUALS = 1  # in the API's filters
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


def submit(submission: Submission, say: Say) -> SubmittedRun:
    """Upload a pipeline, or a new version of a known one, and start a run of it.

    The name of a version is the digest of the file, so the same file is uploaded once.
    """
    connection = _Connection(submission.timeout)
    pipeline, version = _upload(connection, submission, say)
    run = _start_run(connection, submission, pipeline, version, say)
    page = f"/#/runs/details/{run} of Kubeflow's pages, which {_UI_ENDPOINT} names"
    if place := os.environ.get(_UI_ENDPOINT) or os.environ.get(_ENDPOINT):
        place = place if place.startswith("http") else f"http://{place}"
        page = printable(f"{place.rstrip('/')}/#/runs/details/{run}")
    stop = "Terminate, on its page"  # only the client does not find the server: see _connect
    if os.environ.get(_ENDPOINT):
        stop = f"python -c 'import kfp; kfp.Client().terminate_run(\"{run}\")'"
    return SubmittedRun(page, stop, lambda: _run_now(connection, run))


def _run_now(connection: _Connection, run_id: str) -> RunNow:
    with _translated("look at the run"):
        run = connection.ask("look at the run", "get_run", run_id)
        return RunNow(
            _RUN_STATES.get(run.state or "", "running"),
            _tasks((run.run_details and run.run_details.task_details) or []),
            message=_message(run.error, run.state_history),
        )


class _Connection:
    """KFP's client with translated errors."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.client = _connect(timeout)

    def ask(self, action: str, method: str, *args: Any, **options: Any) -> ApiObject:
        """Call a method of the client; if its token has expired, that of a new one."""
        try:
            return self._answer(action, method, *args, **options)
        except PlatformError as error:
            if error.status not in (401, 403):
                raise
            self.client = _connect(self._timeout)
            return self._answer(action, method, *args, **options)

    def _answer(self, action: str, method: str, *args: Any, **options: Any) -> ApiObject:
        with _translated(action):
            answer = getattr(self.client, method)(*args, **options)
        if answer is None:  # JSON's null
            raise PlatformError(f"cannot {action}: {_NOT_KUBEFLOW}.")
        return answer


def _upload(connection: _Connection, submission: Submission, say: Say) -> tuple[str, str]:
    """Upload a file unless it exists; return the ids of the pipeline and its version."""
    name, file, digest = submission.name, str(submission.file), submission.digest
    namespace = connection.client.get_user_namespace() or None

    def find_version(pipeline: str, version: str | None) -> ApiObject:
        """Return the version of that name, or the latest one; None if there is none."""
        versions = connection.ask(
            *("look for versions of the pipeline", "list_pipeline_versions", pipeline),
            filter=_named(version) if version else None,
            sort_by="created_at desc",
        ).pipeline_versions
        return versions[0] if versions else None

    pipelines = connection.ask(
        "look for the pipeline", "list_pipelines", filter=_named(name), namespace=namespace
    ).pipelines
    if not pipelines:
        created = connection.ask(
            *("upload the pipeline", "upload_pipeline", file),
            pipeline_name=name,
            namespace=namespace,
            description=f"Its first version is {digest}.",
        )
        say(f"Uploaded: pipeline {name}, new")
        pipeline = _checked_id(created, "pipeline_id")
        return pipeline, _checked_id(find_version(pipeline, None), "pipeline_version_id")
    pipeline = _checked_id(pipelines[0], "pipeline_id")
    # The server names a first version like the pipeline.
    version = name if digest in (pipelines[0].description or "") else f"{name} {digest}"
    if (known := find_version(pipeline, version)) is not None:
        say(f"Pipeline {name} has this file already")
        return pipeline, _checked_id(known, "pipeline_version_id")
    created = connection.ask(
        *("upload a version of the pipeline", "upload_pipeline_version", file),
        pipeline_version_name=version,
        pipeline_id=pipeline,
    )
    say(f"Uploaded: pipeline {name}, version {version}")
    return pipeline, _checked_id(created, "pipeline_version_id")


def _start_run(
    connection: _Connection, submission: Submission, pipeline: str, version: str, say: Say
) -> str:
    """Start a run of a version, in an experiment that is created if need be; return its id."""
    variables = (os.environ.get(name) for name in _EXPERIMENTS)
    experiment = submission.experiment or next(filter(None, variables), "Default")
    action = f"find or make the experiment {experiment}"
    group = connection.ask(action, "create_experiment", experiment)
    name = submission.run_name or f"{submission.name} {time.strftime('%Y-%m-%d %H-%M-%S')}"
    created = connection.ask(
        *("start a run", "run_pipeline", _checked_id(group, "experiment_id"), name),
        params=dict(submission.parameters),
        pipeline_id=pipeline,
        version_id=version,
        # KFP 2.5 to 2.17 ignores the file's defaultPipelineRoot (driver: RootDAG).
        pipeline_root=submission.pipeline_root or None,
        service_account=submission.profile.service_account if submission.profile else None,
    )
    run = _checked_id(created, "run_id")
    say(f"Started: run {name!r} in experiment {experiment}")
    return run


def _checked_id(answer: ApiObject, name: str) -> str:
    """Return an id of the server, which becomes part of addresses and commands."""
    value = getattr(answer, name, None)
    if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,200}", value):
        return value
    raise PlatformError(
        f"the server's answer has no valid {name} ({str(value)[:80]!r}): {_NOT_KUBEFLOW}."
    )


def _named(name: str) -> str:
    return json.dumps(
        {"predicates": [{"operation": _EQUALS, "key": "display_name", "stringValue": name}]}
    )


def _tasks(details: list[ApiObject]) -> dict[str, TaskNow]:
    """Return nodes by name, including workflow nodes that are not tasks: drivers, executors."""
    pods = {_number(detail.pod_name): detail for detail in details}
    tasks = {}
    for detail in details:
        status = _STATES.get(detail.state or "", "waiting")
        children = [pods.get(_number(child.pod_name)) for child in detail.child_tasks or []]
        if status == "done" and any(c is not None and c.state == "SKIPPED" for c in children):
            status = "cached"  # its driver found the outputs
        message = _message(detail.error, detail.state_history)
        failed = [c.pod_name for c in children if c is not None and c.state == "FAILED"]
        if status == "failed" and failed:
            pod = shlex.quote(failed[-1] or "POD")
            message = f"{message}\nIts log: kubectl logs {pod} --container main".strip()
        tasks[detail.display_name] = TaskNow(
            status, _seconds(detail.start_time), _seconds(detail.end_time), message=message
        )
    return tasks


def _number(pod: str | None) -> str:
    """Return the common part of the names of a node and of its pod."""
    return (pod or "").rpartition("-")[2]


def _seconds(at: datetime.datetime | None) -> float | None:
    """Return seconds since 1970; the server writes year 1 for events that have not happened."""
    return at.timestamp() if at is not None and at.year > 1970 else None


def _message(error: ApiObject, history: list[ApiObject] | None) -> str:
    """Return the message of an error, or else the latest one in a history of states."""
    errors = [error, *(each.error for each in reversed(history or []))]
    return next((each.message for each in errors if each and each.message), "")


def _connect(timeout: float) -> ApiObject:
    """Return KFP's client; `timeout` in seconds is for connecting and for each read."""
    try:
        import kfp
        import kfp_server_api
    except ImportError as error:
        raise PlatformError(
            f"submit needs KFP's client ({error}): uv pip install 'tfx-largebatch[pipeline]'."
        ) from None
    files = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    has_config = any(Path(file).is_file() for file in files.split(os.pathsep))
    if not (any(map(os.environ.get, (_ENDPOINT, "KUBERNETES_SERVICE_HOST"))) or has_config):
        raise PlatformError(_NO_ENDPOINT)  # the client would ask localhost

    class Client(kfp.Client):
        """KFP's client, but requests the server's health once, not 5 times in 25 seconds."""

        def get_kfp_healthz(self, sleep_duration: int = 0) -> ApiObject:
            api = self._healthz_api
            _limit_requests(api.api_client, timeout)
            # Named get_healthz before kfp-server-api 2.1.
            name = "healthz_service_get_healthz"
            return getattr(api, name if hasattr(api, name) else "get_healthz")()

    # KFP's client ignores the variable. A CA in kubectl's configuration replaces it.
    authority = os.environ.get(CA_FILE)
    if authority and not Path(authority).is_file():
        raise PlatformError(
            f"{CA_FILE}={authority}: no such file; name a file of certificates (PEM), or unset it."
        )
    with _translated("connect"):
        client = Client(ssl_ca_cert=authority)
        if client.get_user_namespace():
            # The client itself asks only without a namespace. A gateway may hide the version.
            with contextlib.suppress(kfp_server_api.ApiException):
                client.get_kfp_healthz()
    return client


def _limit_requests(api: ApiObject, timeout: float) -> None:
    """Limit each request of the client in time, and follow no redirection."""
    import urllib3

    pool, settings = api.rest_client.pool_manager, api.configuration
    if (refresh := settings.refresh_api_key_hook) is not None:
        host = settings.host

        def refresh_token(configuration: ApiObject) -> None:
            # If kubectl's configuration has a token, this also resets host and hook: the host
            # to Kubernetes' host, without the path to Kubeflow that KFP's client has added.
            refresh(configuration)
            configuration.host, configuration.refresh_api_key_hook = host, refresh_token

        settings.refresh_api_key_hook = refresh_token
    send = pool.request
    limits = {
        "timeout": urllib3.Timeout(connect=timeout, read=timeout),
        # To a login page, or it would send the upload to another address.
        "redirect": False,
        "retries": urllib3.Retry(3, read=False),
    }

    def request(method: str, url: str, **options: Any) -> ApiObject:
        answer = send(method, url, **{**options, **limits})
        if url.endswith("/healthz") and answer.status == 200:
            json.loads(answer.data)  # a ValueError of a login page, which the client would take
        return answer

    pool.request = request


@contextlib.contextmanager
def _translated(action: str) -> Iterator[None]:
    """Hide what the client prints, and convert its exceptions into errors with a fix."""
    import kfp_server_api
    import urllib3

    try:
        with contextlib.redirect_stdout(io.StringIO()), without_noise():
            yield
    except kfp_server_api.ApiException as error:
        message = error_text(error.body).rstrip(".")
        text = f"{one_line(error.reason or '')}{': ' * bool(message)}{message}"
        fixes = _fixes(int(error.status or 0), message, error.headers or {})
        raise refusal(action, int(error.status or 0), text, fixes, _IF_BUSY) from None
    except urllib3.exceptions.HTTPError as error:
        reason = getattr(error, "reason", None) or error
        hint = f"{_host_hint()} It answers at /apis/v2beta1/healthz below that, if it is reached."
        raise connection_error(action, reason, hint) from None
    # From the client: a broken context file, two experiments of one name, an answer of other types.
    except (ValueError, OSError, TypeError, AttributeError, LookupError, RecursionError) as error:
        text = re.sub(r"(header (?:name|value)).*", r"\1", one_line(error))  # may be a cookie
        raise PlatformError(
            f"cannot {action}: KFP's client failed ({type(error).__name__}: {text}): "
            f"{_NOT_KUBEFLOW}, or ~/.config/kfp/context.json is not of the form {_EXAMPLE}. "
            f"{_host_hint()} {_CREDENTIALS}"
        ) from None


def _fixes(status: int, message: str, headers: Mapping[str, str]) -> dict[int, str]:
    """Return the fix for each HTTP status."""
    location = one_line(headers.get("Location") or "another address")
    redirected = (
        f"The server redirects to {location}: a login page, or the address that {_ENDPOINT} has to "
        f"name. {_CREDENTIALS}"
    )
    refused = (
        "Kubeflow does not accept your credentials, or they do not allow this. " + _CREDENTIALS
    )
    # On a cluster with several users.
    namespace = '~/.config/kfp/context.json has to name your namespace: {"namespace": ...}.'
    return {
        400: namespace if "namespace" in message.lower() else "",
        401: refused,
        403: refused,
        404: f"{_host_hint()} Give the address of Kubeflow Pipelines 2, whose API answers at "
        "/apis/v2beta1/healthz below it.",
        409: "The name is taken, perhaps in another namespace or by somebody at the same time: "
        "submit again, or give the pipeline another name.",
        0: redirected if 300 <= status < 400 else "",
    }


def _host_hint() -> str:
    if place := os.environ.get(_ENDPOINT):
        return f"{_ENDPOINT} is {printable(place)}."
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return f"{_ENDPOINT} is not set: asked was the service ml-pipeline of this cluster."
    return f"{_ENDPOINT} is not set: asked was the cluster of kubectl's configuration."
