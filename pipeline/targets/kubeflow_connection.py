"""KFP's client, connected: where its server is, how long a request takes, its errors in words."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.targets.platform import PlatformError, without_noise

ENDPOINT = "KF_PIPELINES_ENDPOINT"
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


class Refused(PlatformError):
    """Credentials are not taken, or not any more."""


def connected(timeout: float) -> Any:
    """Returns KFP's client, whose requests end, and which takes no login page for an answer.

    Args:
        timeout: seconds that one request may take.

    Raises:
        PlatformError: it is not installed, knows no server, or the server does not take it.
    """
    try:
        import kfp
    except ImportError as error:
        raise PlatformError(
            f"submit needs KFP's client ({error}): pip install 'tfx-largebatch[pipeline]'."
        ) from None
    if not _endpoint_is_known():
        raise PlatformError(_NO_ENDPOINT)

    class Client(kfp.Client):
        """KFP's, asking for its server's health once: it does so 5 times in 25 seconds."""

        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            api = self._healthz_api
            _guard(api.api_client, timeout)
            # Called get_healthz before kfp-server-api 2.1.
            name = "healthz_service_get_healthz"
            return getattr(api, name if hasattr(api, name) else "get_healthz")()

    with in_words("connect"):
        client = Client()
    _guard(client._run_api.api_client, timeout)
    return client


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
def in_words(doing: str) -> Iterator[None]:
    """Takes what the client prints, and turns what it raises into words.

    Args:
        doing: what is being done, as in "cannot connect".

    Raises:
        Refused: credentials are not taken.
        PlatformError: any other failure.
    """
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
    # Of the client: two experiments of a name, a file of a token that is not there.
    except (ValueError, TypeError, OSError) as error:
        raise PlatformError(f"cannot {doing}: {_one_line(str(error))}") from None


def _refusal(doing: str, error: Any) -> PlatformError:
    """What a status of HTTP means here."""
    status, said = error.status, _said(error)
    told = f"cannot {doing}: {status} {error.reason or ''}".rstrip() + (f": {said}" if said else "")
    if status in (401, 403):
        return Refused(
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
