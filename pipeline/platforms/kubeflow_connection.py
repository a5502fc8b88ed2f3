"""A connected KFP client: find its server, limit its requests, translate its errors."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.common.json_types import JsonValue
from pipeline.platforms.bounded_requests import (
    CA_FILE,
    SOCKET_SLACK,
    RequestTimedOut,
    Response,
    ResponseTooLarge,
    Send,
    connection_fix,
    send_bounded,
)
from pipeline.platforms.kfp_context import EXAMPLE, check_context_file
from pipeline.platforms.platform import ApiObject, PlatformError, json_object, without_noise
from pipeline.platforms.server_text import error_text, one_line, printable

ENDPOINT = "KF_PIPELINES_ENDPOINT"
MINIMUM_VERSION = (2, 5)

_NO_ENDPOINT = f"""\
no Kubeflow Pipelines is known on this machine. Do one of
  export {ENDPOINT}=https://host/pipeline      # what its pages are at
  kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80 & export {ENDPOINT}=http://localhost:8080
  kubectl config use-context NAME              # it is reached through Kubernetes then
or submit from a pod of the cluster."""

_CREDENTIALS = (
    "KFP's client takes credentials from KF_PIPELINES_IAP_OAUTH2_CLIENT_ID (Google's proxy), from "
    f"~/.config/kfp/context.json ({EXAMPLE}; or client_authentication_header_name and "
    "client_authentication_header_value in place of the cookie), or in a pod from the token that "
    "KF_PIPELINES_SA_TOKEN_PATH names."
)


class CredentialsRefused(PlatformError):
    """Credentials are missing, wrong or have expired."""


def connect(timeout: float) -> ApiObject:
    """Return KFP's client with limited requests; it rejects login pages as answers.

    Args:
        timeout: Time limit of one request in seconds, from connecting to the last byte.

    Raises:
        PlatformError: KFP is not installed, finds no server, or the server refuses the client or is
            too old.
    """
    try:
        import kfp
    except ImportError as error:
        raise PlatformError(
            f"submit needs KFP's client ({error}): uv pip install 'tfx-largebatch[pipeline]'."
        ) from None
    if not _endpoint_is_known():
        raise PlatformError(_NO_ENDPOINT)
    _check_endpoint()
    check_context_file(Path(kfp.Client._LOCAL_KFP_CONTEXT))

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
            f"{CA_FILE}={printable(authority)}: no such file; name a file of certificates (PEM), "
            "or unset it."
        )
    with translate_errors("connect"):
        client = Client(ssl_ca_cert=authority)
        _limit_requests(client._run_api.api_client, timeout)
        if client.get_user_namespace():
            _check_health(client)  # the client checks it only without a namespace
    return client


def _check_health(client: ApiObject) -> None:
    """Check the server's version; an error is ignored, because a gateway may hide the version."""
    import kfp_server_api

    with contextlib.suppress(kfp_server_api.ApiException):
        client.get_kfp_healthz()


def _check_endpoint() -> None:
    """Reject an invalid address without printing it, because it may contain a password."""
    place = os.environ.get(ENDPOINT)
    if not place:
        return
    try:
        parts = urlsplit(place if "://" in place else f"https://{place}")
        is_valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = False
    if not is_valid or parts.scheme not in ("http", "https") or not place.isprintable():
        raise PlatformError(
            f"{ENDPOINT} is not an address; use https://host, https://host/pipeline or "
            "http://localhost:8080."
        )


def _limit_requests(api: ApiObject, timeout: float) -> None:
    """Limit each request of the client, and reject answers that are not a JSON object."""
    rest, settings = api.rest_client, api.configuration
    if hasattr(rest.request, "is_limited"):
        return
    if (refresh := settings.refresh_api_key_hook) is not None:
        host = settings.host

        def refresh_token(configuration: ApiObject) -> None:
            # If kubectl's configuration has a token, this also resets host and hook: the host
            # to Kubernetes' host, without the path to Kubeflow that KFP's client has added.
            refresh(configuration)
            configuration.host, configuration.refresh_api_key_hook = host, refresh_token

        settings.refresh_api_key_hook = refresh_token
    rest.pool_manager.request = _bounded(rest.pool_manager.request, timeout)
    send = rest.request

    def request(method: str, url: str, **options: JsonValue) -> Response:
        options["_request_timeout"] = options.get("_request_timeout") or (timeout, timeout)
        answer = send(method, url, **options)
        hint = f"not Kubeflow Pipelines 2. {_host_hint()} {_CREDENTIALS}"
        found = json_object(url, answer.data or b"", hint)
        if urlsplit(url).path.endswith("/healthz"):
            _check_version(found.get("tag_name"))
        return answer

    request.is_limited = True  # pyright: ignore[reportFunctionMemberAccess]
    rest.request = request


def _bounded(send: Send, timeout: float) -> Send:
    """Return `PoolManager.request` with limits for the time and the size of an answer."""
    import urllib3

    def request(method: str, url: str, **options: JsonValue) -> Response:
        # A redirection leads to a login page, or would send the upload to another address.
        options.update(preload_content=False, redirect=False, timeout=timeout + SOCKET_SLACK)
        response, body = send_bounded(lambda: send(method, url, **options), timeout)
        # These describe the bytes on the wire, not this body.
        wire = ("content-encoding", "content-length", "transfer-encoding")
        headers = {k: v for k, v in response.headers.items() if k.lower() not in wire}
        return urllib3.HTTPResponse(
            body=io.BytesIO(body), headers=headers, status=response.status, reason=response.reason
        )

    return request


def _check_version(tag: object) -> None:
    """Reject a server that is known to be too old; a custom build has no version."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", tag) if isinstance(tag, str) else None
    if found and (int(found[1]), int(found[2])) < MINIMUM_VERSION:
        raise PlatformError(
            f"the server is Kubeflow Pipelines {one_line(tag)}; 2.5 or newer is needed: older ones "
            "do not know all that is compiled (labels and time limits of nodes, retries). Upgrade "
            "it."
        )


@contextlib.contextmanager
def translate_errors(action: str) -> Iterator[None]:
    """Hide what the client prints, and convert its exceptions into errors with a fix.

    Args:
        action: The action, as in "cannot connect".

    Raises:
        CredentialsRefused: The server does not accept the credentials.
        PlatformError: Any other failure.
    """
    import kfp_server_api
    import urllib3

    try:
        with contextlib.redirect_stdout(io.StringIO()), without_noise():
            yield
    except kfp_server_api.ApiException as error:
        raise _refusal(action, error) from None
    except ResponseTooLarge as error:
        raise PlatformError(f"cannot {action}: {error}. {_host_hint()}") from None
    except (urllib3.exceptions.HTTPError, RequestTimedOut) as error:
        reason = getattr(error, "reason", None) or error
        raise PlatformError(
            f"cannot {action}: no answer ({one_line(reason)}).{connection_fix(reason)} "
            f"{_host_hint()} It answers at /apis/v2beta1/healthz below that, if it is reached.",
            is_transient=True,
        ) from None
    # From the client: two experiments of the same name, a missing token file.
    except (ValueError, OSError) as error:
        raise PlatformError(f"cannot {action}: {one_line(error)}") from None
    # From the client, if an answer has other types than the API, or settings are missing.
    except (TypeError, AttributeError, LookupError, RecursionError) as error:
        raise PlatformError(
            f"cannot {action}: KFP's client failed ({type(error).__name__}: {one_line(error)}); "
            "the answer is not one of Kubeflow Pipelines 2, or a file of credentials is missing. "
            f"{_host_hint()}"
        ) from None


def _refusal(action: str, error: ApiObject) -> PlatformError:
    """Return the error for an HTTP status."""
    status, message = int(error.status or 0), error_text(error.body).rstrip(".")
    text = f"cannot {action}: {status} {one_line(error.reason or '')}".rstrip()
    text += f": {message}" if message else ""
    if 300 <= status < 400:
        location = (error.headers or {}).get("Location") or "another address"
        return CredentialsRefused(
            f"{text}. The server redirects to {one_line(location)}: a login page, or the address "
            f"that {ENDPOINT} has to name. {_CREDENTIALS}"
        )
    if status in (401, 403):
        return CredentialsRefused(
            f"{text}. Kubeflow does not accept your credentials, or they do not allow this. "
            f"{_CREDENTIALS}"
        )
    is_transient = status >= 500 or status == 429
    if is_transient:
        fix = (
            "The server's own failure: try again, and look into its log (kubectl logs -n kubeflow "
            "deployment/ml-pipeline)."
        )
    elif status == 404:
        fix = (
            f"{_host_hint()} Give the address of Kubeflow Pipelines 2, whose API answers at "
            "/apis/v2beta1/healthz below it."
        )
    elif status == 409:
        fix = (
            "The name is taken, perhaps in another namespace or by somebody at the same time: "
            "submit again, or give the pipeline another name."
        )
    elif "namespace" in message.lower():
        fix = (
            "On a cluster with several users, ~/.config/kfp/context.json has to name your "
            'namespace: {"namespace": ...}.'
        )
    else:
        fix = ""
    return PlatformError(f"{text}. {fix}".rstrip(), is_transient=is_transient)


def _endpoint_is_known() -> bool:
    """Return whether KFP's client finds a host; without one it uses localhost."""
    files = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    return bool(
        os.environ.get(ENDPOINT)
        or os.environ.get("KUBERNETES_SERVICE_HOST")
        or any(Path(file).is_file() for file in files.split(os.pathsep))
    )


def _host_hint() -> str:
    if place := os.environ.get(ENDPOINT):
        return f"{ENDPOINT} is {printable(place)}."
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return f"{ENDPOINT} is not set: asked was the service ml-pipeline of this cluster."
    return f"{ENDPOINT} is not set: asked was the cluster of kubectl's configuration."
