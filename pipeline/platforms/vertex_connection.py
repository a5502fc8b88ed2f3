"""Google's Vertex AI client, connected: its place, limits of a request, and translated errors.

The client finds the credentials: gcloud's, or GOOGLE_APPLICATION_CREDENTIALS. It also finds the
project, if `cluster.vertex` does not name it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.cluster import TargetConfig, VertexConfig
from pipeline.platforms.bounded_requests import (
    SOCKET_SLACK,
    RequestTimedOut,
    Response,
    ResponseTooLarge,
    Send,
    connection_fix,
    send_bounded,
)
from pipeline.platforms.platform import ApiObject, PlatformError, json_object, without_noise
from pipeline.platforms.server_text import error_text, one_line

ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"
"""gcloud's own variable for an API that is reached elsewhere, by a private endpoint for example."""
_REGIONS = ("GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOGIN = (
    "gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS=key.json, gives this "
    "machine credentials."
)
_FIXES = {
    401: _LOGIN,
    403: "You need roles/aiplatform.user in the project, and roles/iam.serviceAccountUser on the "
    "service account that runs it; the API aiplatform.googleapis.com must be enabled.",
    404: "Look at cluster.vertex.project and cluster.vertex.region, and whether what the message "
    "names is there.",
    409: "Something of this name was just created, or is being changed: try again.",
}
_REPLAY_FIX = (
    "`python -m pipeline replay` executes the compiled file here; machine and accelerator names "
    "are those of cluster.vertex.resources."
)


def import_client() -> ApiObject:
    """Return the module of Google's client.

    Raises:
        PlatformError: The client is not installed.
    """
    try:
        with without_noise():  # about supported Python versions
            from google.cloud import aiplatform_v1
    except ImportError as error:
        raise PlatformError(
            f"Google's client cannot be imported ({error}): pip install google-cloud-aiplatform."
        ) from None
    return aiplatform_v1


@dataclass(frozen=True)
class Connection:
    """The API of one region, for one project.

    Attributes:
        place: `projects/<project>/locations/<region>`.
        address: Host of the API, or its URL if it is not https.
        credentials: The result of `google.auth`.
        timeout: Time limit of one request in seconds, from connecting to the last byte.
    """

    place: str
    address: str
    credentials: ApiObject
    timeout: float

    def client(self, service: ApiObject) -> ApiObject:
        """Return a client whose requests have limits."""
        client = service(
            credentials=self.credentials,
            # HTTPS passes proxies that block gRPC.
            transport="rest",
            client_options={"api_endpoint": self.address},
        )
        self._limit(client.transport._session)
        return client

    def get(self, name: str) -> JsonObject:
        """Return a resource, such as an operation, in the API's format.

        Raises:
            GoogleAPICallError: The API refuses; see `translate_errors`.
        """
        from google.api_core import exceptions
        from google.auth.transport.requests import AuthorizedSession

        base = self.address if "://" in self.address else f"https://{self.address}"
        with AuthorizedSession(self.credentials) as session:
            self._limit(session)
            response = session.get(f"{base}/v1/{name}", timeout=self.timeout)
        if response.status_code >= 400:
            raise exceptions.from_http_response(response)
        return response.json()

    def _limit(self, session: ApiObject) -> None:
        _limit_requests(session, self.timeout, _checked_answer)
        # Tokens are requested in another session, from servers whose answers are not all JSON.
        if (tokens := getattr(session, "_auth_request_session", None)) is not None:
            _limit_requests(tokens, self.timeout, lambda response: None)


def find_connection(profile: TargetConfig | None, timeout: float) -> Connection:
    """Return the connection for a project and region, with credentials.

    Args:
        profile: `cluster.vertex`; None: use the project and region of this machine.
        timeout: Time limit of one request in seconds, from connecting to the last byte.

    Raises:
        PlatformError: There is no region or no project.
        GoogleAuthError: There are no credentials; see `translate_errors`.
    """
    import google.auth

    profile = profile if isinstance(profile, VertexConfig) else None
    region = profile.region if profile else None
    region = region or next(filter(None, (os.environ.get(name) for name in _REGIONS)), None)
    if not region:
        raise PlatformError(
            "no region: name it as cluster.vertex.region (--config my.yaml --set "
            f"cluster.vertex.region=europe-west4), or by {_REGIONS[0]}."
        )
    try:
        credentials, project = google.auth.default(scopes=[_SCOPE])
    except ValueError as error:  # an invalid key; other failures have separate classes
        raise PlatformError(
            f"the key file that GOOGLE_APPLICATION_CREDENTIALS names cannot be used "
            f"({one_line(error)}). {_LOGIN}"
        ) from None
    project = (profile.project if profile else None) or project
    if not project:
        raise PlatformError(
            "no project: name it as cluster.vertex.project, by GOOGLE_CLOUD_PROJECT, or with "
            "gcloud config set project NAME."
        )
    address = os.environ.get(ENDPOINT) or f"{region}-aiplatform.googleapis.com"
    return Connection(
        place=f"projects/{project}/locations/{region}",
        address=address.rstrip("/"),
        credentials=credentials,
        timeout=timeout,
    )


def connect(
    service: ApiObject, profile: TargetConfig | None, timeout: float
) -> tuple[ApiObject, str]:
    """Return a client of one service, and `projects/<project>/locations/<region>`.

    Raises:
        PlatformError: There is no region or no project.
    """
    connection = find_connection(profile, timeout)
    return connection.client(service), connection.place


def _limit_requests(session: ApiObject, timeout: float, check: Callable[[Response], None]) -> None:
    """Limit each request of a session, and check each answer."""
    for adapter in session.adapters.values():
        adapter.send = _bounded(adapter.send, timeout, check)


def _bounded(send: Send, timeout: float, check: Callable[[Response], None]) -> Send:
    def limited(request: ApiObject, **options: JsonValue) -> Response:
        options.update(stream=True, timeout=timeout + SOCKET_SLACK)
        response, body = send_bounded(
            lambda: send(request, **options), timeout, lambda response: response.raw
        )
        response._content, response._content_consumed = body, True
        check(response)
        return response

    return limited


def _checked_answer(response: Response) -> None:
    """Reject an answer that is not a JSON object; convert errors for Google's client.

    The client expects `{"error": {...}}` and fails with AttributeError on other forms.
    """
    status, body = response.status_code, response.content
    if 200 <= status < 300:
        hint = f"a proxy between this machine and Vertex. {_endpoint_hint()}"
        json_object(response.url, body, hint)
    elif status >= 400:
        message = error_text(body) or one_line(response.reason or "")
        response._content = json.dumps({"error": {"code": status, "message": message}}).encode()
        response.encoding = "utf-8"


def _endpoint_hint() -> str:
    if place := os.environ.get(ENDPOINT):
        return f"{ENDPOINT} is {place}."
    return "Look at this machine's proxy (HTTPS_PROXY)."


@contextlib.contextmanager
def translate_errors(action: str, refusal_fix: str = _REPLAY_FIX) -> Iterator[None]:
    """Convert exceptions of the client into errors with a fix.

    Args:
        action: The action, as in "cannot create the job".
        refusal_fix: What to do if Vertex refuses the content of the request.

    Raises:
        PlatformError: Any failure of the client.
    """
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.protobuf import json_format

    try:
        with without_noise():
            yield
    except ResponseTooLarge as error:
        raise PlatformError(f"cannot {action}: {error}. {_endpoint_hint()}") from None
    except (
        *(auth.TransportError, requests.RequestException, api.RetryError),
        RequestTimedOut,
    ) as error:
        raise PlatformError(
            f"cannot {action}: no answer ({one_line(error)}).{connection_fix(error)} Look at "
            "this machine's way to googleapis.com, and at cluster.vertex.region.",
            is_transient=True,
        ) from None
    except auth.GoogleAuthError as error:
        raise PlatformError(f"cannot {action}: {one_line(error).rstrip('.')}. {_LOGIN}") from None
    except api.GoogleAPICallError as error:
        raise _refusal(action, error, refusal_fix) from None
    except json_format.ParseError as error:
        raise PlatformError(
            f"cannot {action}: the answer is not one of Vertex' API that the installed client "
            f"knows ({one_line(error)}). {_endpoint_hint()}"
        ) from None
    # From the client, if an answer has other types than the API.
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise PlatformError(
            f"cannot {action}: the answer is not one of Vertex' API ({type(error).__name__}: "
            f"{one_line(error)}). {_endpoint_hint()}"
        ) from None


def _refusal(action: str, error: ApiObject, fix: str) -> PlatformError:
    """Return the error for an error of the API."""
    message = re.sub(r"^[A-Z]+ \S+: ", "", error.message)
    code = int(error.code or 0)
    text = f"cannot {action}: {code} {one_line(message)}".rstrip(". ")
    if code >= 500 or code == 429:
        return PlatformError(
            f"{text}. Vertex' own failure, or its quota: try again.", is_transient=True
        )
    return PlatformError(f"{text}. {_FIXES.get(code) or f'Vertex refuses what was sent: {fix}'}")
