"""Kubeflow Pipelines' API, with KFP's client: upload, start a run, and follow it.

The client finds host and credentials: KF_PIPELINES_ENDPOINT and similar variables, the service
account of a pod, kubectl's configuration, ~/.config/kfp/context.json.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import io
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.common.json_types import JsonValue
from pipeline.platforms.platform import (
    CA_FILE,
    ApiObject,
    PlatformError,
    RunNow,
    Say,
    Submission,
    TaskNow,
    connection_error,
    error_text,
    one_line,
    printable,
    without_noise,
)
from pipeline.platforms.platform import RunState as State
from pipeline.report.progress import Status

_ENDPOINT = "KF_PIPELINES_ENDPOINT"
_UI_ENDPOINT = "KF_PIPELINES_UI_ENDPOINT"
_MINIMUM_VERSION = (2, 5)
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


def submit(submission: Submission, say: Say) -> _KubeflowRun:
    """Upload a pipeline, or a new version of a known one, and start a run of it.

    The name of a version is the digest of the file, so the same file is uploaded once.

    Raises:
        PlatformError: There is no server, or it refuses the pipeline.
    """
    connection = _Connection(submission.timeout)
    pipeline, version = connection.upload(submission, say)
    return connection.start_run(submission, pipeline, version, say)


@dataclass(frozen=True)
class _KubeflowRun:
    """A run of Kubeflow Pipelines."""

    connection: _Connection
    run_id: str

    @property
    def page(self) -> str:
        """The address of the run's page."""
        return _page_of(f"runs/details/{self.run_id}")

    @property
    def stop(self) -> str:
        """A command that stops the run."""
        if not os.environ.get(_ENDPOINT):
            return "Terminate, on its page"  # only the client does not find it: see connect
        return f"python -c 'import kfp; kfp.Client().terminate_run(\"{self.run_id}\")'"

    def now(self) -> RunNow:
        """Request the state of the run from the server."""
        with _translated("look at the run"):
            run = self.connection.ask("look at the run", "get_run", self.run_id)
            details = (run.run_details and run.run_details.task_details) or []
            return RunNow(
                _RUN_STATES.get(run.state or "", "running"),
                _tasks(details),
                message=_message(run.error) or _last_message(run.state_history),
            )


class _Refused(PlatformError):
    """Credentials are missing, wrong or have expired."""


class _Connection:
    """KFP's client with translated errors."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._client = _connect(timeout)

    def ask(self, action: str, method: str, *args: Any, **options: Any) -> ApiObject:
        """Call a method of the client; if its token has expired, that of a new one."""
        try:
            with _translated(action):
                return getattr(self._client, method)(*args, **options)
        except _Refused:
            self._client = _connect(self._timeout)
            with _translated(action):
                return getattr(self._client, method)(*args, **options)

    def upload(self, submission: Submission, say: Say) -> tuple[str, str]:
        """Upload a file unless it exists; return the ids of the pipeline and its version."""
        name, file = submission.name, str(submission.file)
        namespace = self._client.get_user_namespace() or None
        found = self.ask(
            "look for the pipeline", "list_pipelines", filter=_named(name), namespace=namespace
        ).pipelines
        if not found:
            about = {"description": f"Its first version is {submission.digest}."}
            made = self.ask(
                *("upload the pipeline", "upload_pipeline", file),
                **{"pipeline_name": name, "namespace": namespace, **about},
            )
            say(f"Uploaded: pipeline {name}, new")
            pipeline = _checked_id(made.pipeline_id, "the pipeline")
            return pipeline, _version_id(self._version(pipeline))
        pipeline = _checked_id(found[0].pipeline_id, "the pipeline")
        # The server names a first version like the pipeline.
        is_first = submission.digest in (found[0].description or "")
        version = name if is_first else f"{name} {submission.digest}"
        known = self._version(pipeline, version)
        if known is not None:
            say(f"Pipeline {name} has this file already")
            return pipeline, _version_id(known)
        made = self.ask(
            *("upload a version of the pipeline", "upload_pipeline_version", file),
            pipeline_version_name=version,
            pipeline_id=pipeline,
        )
        say(f"Uploaded: pipeline {name}, version {version}")
        return pipeline, _version_id(made)

    def start_run(
        self, submission: Submission, pipeline: str, version: str, say: Say
    ) -> _KubeflowRun:
        """Start a run of a version, in an experiment that is created if there is none."""
        variables = (os.environ.get(name) for name in _EXPERIMENTS)
        experiment = submission.experiment or next(filter(None, variables), "Default")
        action = f"find or make the experiment {experiment}"
        group = self.ask(action, "create_experiment", experiment)
        name = submission.run_name or f"{submission.name} {time.strftime('%Y-%m-%d %H-%M-%S')}"
        made = self.ask(
            *("start a run", "run_pipeline"),
            *(_checked_id(group.experiment_id, "the experiment"), name),
            params=dict(submission.parameters),
            pipeline_id=pipeline,
            version_id=version,
            # KFP 2.5 to 2.17 ignores the file's defaultPipelineRoot (driver: RootDAG).
            pipeline_root=submission.pipeline_root or None,
            service_account=submission.profile.service_account if submission.profile else None,
        )
        run_id = _checked_id(made.run_id, "the run")
        say(f"Started: run {name!r} in experiment {experiment}")
        return _KubeflowRun(self, run_id)

    def _version(self, pipeline: str, name: str | None = None) -> ApiObject:
        """Return the version of that name, or the latest one; None if there is none."""
        found = self.ask(
            *("look for versions of the pipeline", "list_pipeline_versions", pipeline),
            filter=_named(name) if name else None,
            sort_by="created_at desc",
        )
        return found.pipeline_versions[0] if found.pipeline_versions else None


def _page_of(fragment: str) -> str:
    """Return the address of a page of Kubeflow, without credentials."""
    place = os.environ.get(_UI_ENDPOINT) or os.environ.get(_ENDPOINT)
    if not place:
        return f"/#/{fragment} of Kubeflow's pages, which {_UI_ENDPOINT} names"
    place = place if place.startswith("http") else f"http://{place}"
    return printable(f"{place.rstrip('/')}/#/{fragment}")


def _checked_id(found: object, owner: str) -> str:
    """Return an id of the server, which becomes part of addresses and commands."""
    if isinstance(found, str) and _ID.fullmatch(found):
        return found
    raise PlatformError(
        f"the server's answer has no valid id of {owner} ({str(found)[:80]!r}): it is not Kubeflow "
        "Pipelines 2.5 or newer, or a proxy changes its answers."
    )


def _version_id(version: ApiObject) -> str:
    return _checked_id(version and version.pipeline_version_id, "the pipeline's version")


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
    """Limit each request of the client in time, and reject answers that are not a JSON object."""
    import urllib3

    rest, settings = api.rest_client, api.configuration
    if (refresh := settings.refresh_api_key_hook) is not None:
        host = settings.host

        def refresh_token(configuration: ApiObject) -> None:
            # If kubectl's configuration has a token, this also resets host and hook: the host
            # to Kubernetes' host, without the path to Kubeflow that KFP's client has added.
            refresh(configuration)
            configuration.host, configuration.refresh_api_key_hook = host, refresh_token

        settings.refresh_api_key_hook = refresh_token
    # A redirection leads to a login page, or would send the upload to another address.
    once = {"redirect": False, "retries": urllib3.Retry(3, read=False)}
    rest.pool_manager.request = functools.partial(rest.pool_manager.request, **once)
    send = rest.request

    def request(method: str, url: str, **options: JsonValue) -> ApiObject:
        answer = send(method, url, **{**options, "_request_timeout": (timeout, timeout)})
        try:
            content = json.loads(answer.data or b"{}")
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise PlatformError(
                f"{url.partition('?')[0]} answers with no JSON object but "
                f"{error_text(answer.data)[:80]!r}: a login page, or not Kubeflow Pipelines 2. "
                f"{_host_hint()} {_CREDENTIALS}"
            )
        if urlsplit(url).path.endswith("/healthz"):
            _check_version(content.get("tag_name"))
        return answer

    rest.request = request


def _check_version(tag: object) -> None:
    """Reject a server that is known to be too old; a custom build has no version."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", tag) if isinstance(tag, str) else None
    if found and (int(found[1]), int(found[2])) < _MINIMUM_VERSION:
        raise PlatformError(
            f"the server is Kubeflow Pipelines {one_line(tag)}; 2.5 or newer is needed: older ones "
            "do not know all that is compiled (labels and time limits of nodes, retries). Upgrade "
            "it."
        )


@contextlib.contextmanager
def _translated(action: str) -> Iterator[None]:
    """Hide what the client prints, and convert its exceptions into errors with a fix."""
    import kfp_server_api
    import urllib3

    try:
        with contextlib.redirect_stdout(io.StringIO()), without_noise():
            yield
    except kfp_server_api.ApiException as error:
        raise _refusal(action, error) from None
    except urllib3.exceptions.HTTPError as error:
        reason = getattr(error, "reason", None) or error
        hint = f"{_host_hint()} It answers at /apis/v2beta1/healthz below that, if it is reached."
        raise connection_error(action, reason, hint) from None
    # From the client: a broken context file, two experiments of one name, an answer of other types.
    except (ValueError, OSError, TypeError, AttributeError, LookupError, RecursionError) as error:
        text = re.sub(r"(header (?:name|value)).*", r"\1", one_line(error))  # may be a cookie
        raise PlatformError(
            f"cannot {action}: KFP's client failed ({type(error).__name__}: {text}): the answer is "
            "not one of Kubeflow Pipelines 2, or ~/.config/kfp/context.json is not of the form "
            f"{_EXAMPLE}. {_host_hint()}"
        ) from None


def _refusal(action: str, error: ApiObject) -> PlatformError:
    """Return the error for an HTTP status."""
    status, message = int(error.status or 0), error_text(error.body).rstrip(".")
    text = f"cannot {action}: {status} {one_line(error.reason or '')}".rstrip()
    text += f": {message}" if message else ""
    if 300 <= status < 400:
        location = (error.headers or {}).get("Location") or "another address"
        return _Refused(
            f"{text}. The server redirects to {one_line(location)}: a login page, or the address "
            f"that {_ENDPOINT} has to name. {_CREDENTIALS}"
        )
    if status in (401, 403):
        return _Refused(
            f"{text}. Kubeflow does not accept your credentials, or they do not allow this. "
            f"{_CREDENTIALS}"
        )
    fixes = {
        404: f"{_host_hint()} Give the address of Kubeflow Pipelines 2, whose API answers at "
        "/apis/v2beta1/healthz below it.",
        409: "The name is taken, perhaps in another namespace or by somebody at the same time: "
        "submit again, or give the pipeline another name.",
        500: "The server's own failure: try again, and look into its log (kubectl logs -n kubeflow "
        "deployment/ml-pipeline).",
        # On a cluster with several users.
        400: '~/.config/kfp/context.json has to name your namespace: {"namespace": ...}.'
        if "namespace" in message.lower()
        else "",
    }
    is_transient = status >= 500 or status == 429
    fix = fixes.get(500 if is_transient else status, "")
    return PlatformError(f"{text}. {fix}".rstrip(), is_transient=is_transient)


def _host_hint() -> str:
    if place := os.environ.get(_ENDPOINT):
        return f"{_ENDPOINT} is {printable(place)}."
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return f"{_ENDPOINT} is not set: asked was the service ml-pipeline of this cluster."
    return f"{_ENDPOINT} is not set: asked was the cluster of kubectl's configuration."
