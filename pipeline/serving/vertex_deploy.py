"""`serve-manifest --target vertex --deploy`: a model on a Vertex endpoint, by Google's own client.

An endpoint and a model of the same name are used again: the model gets a version more, and the
endpoint sends all its traffic to it. Credentials, project and region are found as by `submit`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.targets.platform import PlatformError, without_noise

if TYPE_CHECKING:
    from pipeline.config.cluster import VertexConfig
    from pipeline.config.config import PipelineConfig

_ENDPOINT = "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"
_REGIONS = ("GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


@dataclass(frozen=True)
class Waiting:
    """How long a request and an operation may take.

    Attributes:
        request: seconds of one request.
        operation: seconds until a model is uploaded, or deployed.
        poll: seconds between two looks at an operation.
    """

    request: float = 60.0
    operation: float = 3600.0
    poll: float = 10.0


@dataclass(frozen=True)
class Run:
    """A connection to Vertex.

    Attributes:
        place: `projects/<project>/locations/<region>`.
        address: of the API.
        connection: arguments of Google's clients.
        session: sends requests with credentials.
        waiting: how long to wait.
    """

    place: str
    address: str
    connection: Mapping[str, Any]
    session: Any
    waiting: Waiting


def deploy(
    requests: Mapping[str, Mapping[str, Any]],
    config: PipelineConfig | None,
    request_file: Path | None = None,
    waiting: Waiting | None = None,
) -> int:
    """Upload a model, and deploy it to the endpoint of its name.

    Args:
        requests: bodies, as `vertex_requests` makes them.
        config: the pipeline, for project and region; None: those of this machine.
        request_file: a request for the endpoint, for the command that is printed at the end.
        waiting: how long to wait.

    Returns:
        The exit code: 0.

    Raises:
        ConfigError: no credentials, project or region, or Vertex refuses a request.
    """
    profile = config.cluster.vertex if config and config.cluster else None
    try:
        number, place = _deploy(requests, profile, waiting or Waiting())
    except PlatformError as error:
        raise ConfigError(f"vertex: {error}") from None
    body = request_file or "REQUEST.json"
    print(f"Try it with\n  gcloud ai endpoints predict {number} {place} --json-request={body}")
    return exit_codes.DONE


def _deploy(
    requests: Mapping[str, Mapping[str, Any]], profile: VertexConfig | None, waiting: Waiting
) -> tuple[str, str]:
    """Return the endpoint's number, and the flags of gcloud that say where it is."""
    aiplatform = _import_client()
    run = _connected(profile, waiting)
    name = requests["createEndpoint"]["displayName"]
    models = aiplatform.ModelServiceClient(**run.connection)
    endpoints = aiplatform.EndpointServiceClient(**run.connection)

    upload = _message(aiplatform.UploadModelRequest, requests["uploadModel"])
    upload.parent = run.place
    if found := _named(models.list_models, name, run):
        upload.parent_model = found.name
    uploaded = aiplatform.UploadModelResponse
    made = _finished("upload the model", models.upload_model, upload, uploaded, run)
    version = f"{made.model}@{made.model_version_id}"
    print(f"Uploaded: {version}")

    endpoint = _named(endpoints.list_endpoints, name, run)
    if endpoint is None:
        create = aiplatform.CreateEndpointRequest(
            parent=run.place, endpoint=_message(aiplatform.Endpoint, requests["createEndpoint"])
        )
        action, call = "create the endpoint", endpoints.create_endpoint
        endpoint = _finished(action, call, create, aiplatform.Endpoint, run)
        print(f"Created: {endpoint.name}")
    before = list(endpoint.deployed_models)

    deployment = _message(aiplatform.DeployModelRequest, requests["deployModel"])
    deployment.endpoint = endpoint.name
    deployment.deployed_model.model = version
    deployed = aiplatform.DeployModelResponse
    _finished("deploy the model", endpoints.deploy_model, deployment, deployed, run)
    _, project, _, region, _, number = endpoint.name.split("/")
    flags = f"--project={project} --region={region}"
    print(f"Deployed to {endpoint.name}: it gets all the traffic")
    for each in before:
        print(
            f"Deployed before, without traffic now, and still paid for: {each.id} ({each.model}). "
            f"Remove it with\n  gcloud ai endpoints undeploy-model {number} {flags} "
            f"--deployed-model-id={each.id}"
        )
    return number, flags


def _import_client() -> Any:
    try:
        with without_noise():
            from google.cloud import aiplatform_v1
    except ImportError as error:
        raise PlatformError(
            f"--deploy needs Google's client ({error}): pip install google-cloud-aiplatform."
        ) from None
    return aiplatform_v1


def _connected(profile: VertexConfig | None, waiting: Waiting) -> Run:
    import google.auth
    from google.auth import exceptions
    from google.auth.transport.requests import AuthorizedSession

    region = profile.region if profile else None
    region = region or next(filter(None, (os.environ.get(each) for each in _REGIONS)), None)
    if not region:
        raise PlatformError(
            "no region: name it as cluster.vertex.region (--set "
            f"cluster.vertex.region=europe-west4), or by {_REGIONS[0]}."
        )
    try:
        credentials, project = google.auth.default(scopes=[_SCOPE])
    except exceptions.GoogleAuthError as error:
        raise PlatformError(
            f"no credentials ({str(error).split('. ')[0]}); gcloud auth application-default login, "
            "or GOOGLE_APPLICATION_CREDENTIALS=key.json, gives this machine some."
        ) from None
    project = (profile.project if profile else None) or project
    if not project:
        raise PlatformError(
            "no project: name it as cluster.vertex.project, or by GOOGLE_CLOUD_PROJECT."
        )
    address = (os.environ.get(_ENDPOINT) or f"{region}-aiplatform.googleapis.com").rstrip("/")
    return Run(
        place=f"projects/{project}/locations/{region}",
        address=address if "://" in address else f"https://{address}",
        connection={
            "credentials": credentials,
            "transport": "rest",  # plain HTTPS passes proxies that gRPC does not
            "client_options": {"api_endpoint": address},
        },
        session=AuthorizedSession(credentials),
        waiting=waiting,
    )


def _message(kind: Any, body: Mapping[str, Any]) -> Any:
    """Return a message of Google's client, which knows every field or refuses the body."""
    from google.protobuf import json_format

    message = kind()
    json_format.ParseDict(dict(body), kind.pb(message))
    return message


def _named(listing: Any, name: str, run: Run) -> Any:
    """Return the model or endpoint of a name; None if there is none."""
    request = {"parent": run.place, "filter": f'display_name="{name}"'}

    def first() -> Any:
        return next(iter(listing(request=request, timeout=run.waiting.request)), None)

    return _translated(f"look for {name}", first)


def _finished(action: str, call: Any, request: Any, kind: Any, run: Run) -> Any:
    """Send a request, wait for its operation, and return the operation's result.

    The operation is asked for at the documented address: over REST Google's client asks at another
    one, `/ui/projects/...`.
    """
    sent = _translated(action, lambda: call(request=request, timeout=run.waiting.request))
    operation = sent.operation
    end = time.monotonic() + run.waiting.operation
    while not operation.done:
        if time.monotonic() > end:
            raise PlatformError(
                f"cannot {action}: {operation.name} has not ended after "
                f"{run.waiting.operation:.0f} s; look at it with gcloud ai operations describe."
            )
        time.sleep(run.waiting.poll)
        operation = _look_at(operation.name, action, run)
    if operation.HasField("error"):
        raise PlatformError(
            f"cannot {action}: {' '.join(operation.error.message.split())[:600].rstrip('.')}. Its "
            "log: gcloud ai operations describe, and the endpoint's log in Cloud Logging."
        )
    message = kind()
    operation.response.Unpack(kind.pb(message))
    return message


def _look_at(name: str, action: str, run: Run) -> Any:
    from google.longrunning import operations_pb2
    from google.protobuf import json_format

    def look() -> Any:
        response = run.session.get(f"{run.address}/v1/{name}", timeout=run.waiting.request)
        if response.status_code >= 400:
            raise PlatformError(f"cannot {action}: {response.status_code} {response.text[:300]}")
        return json_format.ParseDict(response.json(), operations_pb2.Operation())

    return _translated(action, look)


def _translated(action: str, call: Any) -> Any:
    """Turn what the client raises into an error with a fix."""
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    try:
        with without_noise():
            return call()
    except (requests.RequestException, auth.TransportError, api.RetryError) as error:
        reason = " ".join(str(error).split())[:300]
        raise PlatformError(f"cannot {action}: no answer ({reason}).") from None
    except auth.GoogleAuthError as error:
        raise PlatformError(f"cannot {action}: {error}") from None
    except api.GoogleAPICallError as error:
        said = re.sub(r"^[A-Z]+ \S+: ", "", error.message)
        reason = " ".join(said.split())[:600].rstrip(".")
        raise PlatformError(
            f"cannot {action}: {int(error.code or 0) or ''} {reason}. You need "
            "roles/aiplatform.user in the project, and the image, machine and quota that "
            "cluster.vertex.server names."
        ) from None
