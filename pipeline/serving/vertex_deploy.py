"""`serve-manifest --target vertex --deploy`: deploy a model to a Vertex endpoint.

It uses Google's client. An existing endpoint and model of the same name are reused: the model gets
a new version, and the endpoint sends all its traffic to it. Credentials, project and region are
found as by `submit`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.platforms.platform import PlatformError
from pipeline.platforms.server_text import one_line
from pipeline.platforms.vertex_connection import (
    Connection,
    find_connection,
    import_client,
    translate_errors,
)

if TYPE_CHECKING:
    from pipeline.config.cluster import VertexConfig
    from pipeline.config.config import PipelineConfig

Message: TypeAlias = Any
"""A protobuf message of Google's client, or its class."""

_REFUSAL_FIX = "image, machine, accelerator and quota are those of cluster.vertex.server."


@dataclass(frozen=True)
class Waiting:
    """Time limits of requests and operations.

    Attributes:
        request: Time limit of one request in seconds.
        operation: Time limit of an upload or a deployment in seconds.
        poll: Seconds between two requests for an operation's state.
    """

    request: float = 60.0
    operation: float = 3600.0
    poll: float = 10.0


def deploy(
    requests: Mapping[str, Mapping[str, JsonValue]],
    config: PipelineConfig | None,
    request_file: Path | None = None,
    waiting: Waiting | None = None,
) -> int:
    """Upload a model, and deploy it to the endpoint of the same name.

    Args:
        requests: Bodies of the requests, from `vertex_requests`.
        config: The pipeline, for project and region; None: use those of this machine.
        request_file: A request for the endpoint, for the command that is printed at the end.
        waiting: Time limits.

    Returns:
        The exit code: 0.

    Raises:
        ConfigError: There are no credentials, no project or no region, or Vertex refuses a
            request.
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
    requests: Mapping[str, Mapping[str, JsonValue]], profile: VertexConfig | None, waiting: Waiting
) -> tuple[str, str]:
    """Return the endpoint's number, and the gcloud flags for its location."""
    aiplatform = import_client()
    name = requests["createEndpoint"]["displayName"]
    with translate_errors("connect"):
        connection = find_connection(profile, waiting.request)
        models = connection.client(aiplatform.ModelServiceClient)
        endpoints = connection.client(aiplatform.EndpointServiceClient)
    operations = _Operations(connection, waiting)

    upload = _message(aiplatform.UploadModelRequest, requests["uploadModel"])
    upload.parent = connection.place
    if found := _named(models.list_models, name, connection):
        upload.parent_model = found.name
    uploaded = aiplatform.UploadModelResponse
    made = operations.run("upload the model", models.upload_model, upload, uploaded)
    version = f"{made.model}@{made.model_version_id}"
    print(f"Uploaded: {version}")

    endpoint = _named(endpoints.list_endpoints, name, connection)
    if endpoint is None:
        create = aiplatform.CreateEndpointRequest(
            parent=connection.place,
            endpoint=_message(aiplatform.Endpoint, requests["createEndpoint"]),
        )
        action, call = "create the endpoint", endpoints.create_endpoint
        endpoint = operations.run(action, call, create, aiplatform.Endpoint)
        print(f"Created: {endpoint.name}")
    before = list(endpoint.deployed_models)

    deployment = _message(aiplatform.DeployModelRequest, requests["deployModel"])
    deployment.endpoint = endpoint.name
    deployment.deployed_model.model = version
    deployed = aiplatform.DeployModelResponse
    operations.run("deploy the model", endpoints.deploy_model, deployment, deployed)
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


def _message(kind: Message, body: Mapping[str, JsonValue]) -> Message:
    """Return a message of Google's client; raises for a field that the client does not know."""
    from google.protobuf import json_format

    message = kind()
    json_format.ParseDict(dict(body), kind.pb(message))
    return message


def _named(
    listing: Callable[..., Iterable[Message]], name: str, connection: Connection
) -> Message | None:
    """Return the model or endpoint with this name; None if there is none."""
    request = {"parent": connection.place, "filter": f'display_name="{name}"'}
    with translate_errors(f"look for {name}"):
        return next(iter(listing(request=request, timeout=connection.timeout)), None)


@dataclass(frozen=True)
class _Operations:
    """Requests that Vertex answers with a long-running operation."""

    connection: Connection
    waiting: Waiting

    def run(
        self, action: str, call: Callable[..., Message], request: Message, kind: Message
    ) -> Message:
        """Send a request, wait for its operation, and return the operation's result.

        Raises:
            PlatformError: The operation failed, or has not ended in time.
        """
        with translate_errors(action, _REFUSAL_FIX):
            operation = call(request=request, timeout=self.waiting.request).operation
        end = time.monotonic() + self.waiting.operation
        while not operation.done:
            if time.monotonic() > end:
                raise PlatformError(
                    f"cannot {action}: {operation.name} has not ended after "
                    f"{self.waiting.operation:.0f} s; look at it with gcloud ai operations "
                    "describe."
                )
            time.sleep(self.waiting.poll)
            operation = self._look_at(operation.name, action)
        if operation.HasField("error"):
            raise PlatformError(
                f"cannot {action}: {one_line(operation.error.message).rstrip('.')}. Its log: "
                "gcloud ai operations describe, and the endpoint's log in Cloud Logging."
            )
        message = kind()
        operation.response.Unpack(kind.pb(message))
        return message

    def _look_at(self, name: str, action: str) -> Message:
        """Return the current state of the operation.

        Reads the documented address: over REST, Google's client reads another one,
        `/ui/projects/...`.
        """
        from google.longrunning import operations_pb2
        from google.protobuf import json_format

        with translate_errors(action, _REFUSAL_FIX):
            return json_format.ParseDict(self.connection.get(name), operations_pb2.Operation())
