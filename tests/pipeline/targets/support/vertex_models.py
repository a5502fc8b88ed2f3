"""Vertex AI's ModelService and EndpointService over REST, by the installed client's own protos.

Each change is a long-running operation, which is not done when it is first asked for.
"""

from __future__ import annotations

import json
import re
from typing import Any

from google.cloud import aiplatform_v1
from google.protobuf import json_format
from loopback import Answer, Loopback, Request
from vertex_server import error

PLACE = re.compile(r"/v1/(projects/[^/]+/locations/[^/]+)/(models|endpoints)(:upload)?")


class VertexModels(Loopback):
    """One region.

    Attributes:
        models: `UploadModelRequest`s, by the name of the model and version.
        endpoints: by name.
        polls: how often each operation was asked for.
        failure: what an operation ends with instead, by the kind of its request.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.models: dict[str, aiplatform_v1.UploadModelRequest] = {}
        self.endpoints: dict[str, aiplatform_v1.Endpoint] = {}
        self.polls: dict[str, int] = {}
        self.failure: dict[str, dict[str, Any]] = {}
        self._results: dict[str, dict[str, Any]] = {}

    def _answer(self, request: Request) -> Answer:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        name = request.path.removeprefix("/v1/")
        if name in self._results and request.method == "GET":
            self.polls[name] = self.polls.get(name, 0) + 1
            done = self.polls[name] > 1
            return Answer({"name": name, "done": done, **(self._results[name] if done else {})})
        if found := PLACE.fullmatch(request.path):
            place, kind, upload = found.groups()
            if request.method == "GET":
                return self._listed(kind, request.query["filter"])
            return self._upload(place, request) if upload else self._create(place, request)
        if name.endswith(":deployModel"):
            return self._deploy(name.removesuffix(":deployModel"), request)
        return error(404, "NOT_FOUND", f"{request.path} is not found.")

    def _listed(self, kind: str, query: str) -> Answer:
        (wanted,) = re.findall(r'^display_name="(.*)"$', query)
        if kind == "endpoints":
            found = [e for e in self.endpoints.values() if e.display_name == wanted]
            return Answer({kind: [as_json(each) for each in found]})
        names = {
            name.partition("@")[0]: upload.model
            for name, upload in self.models.items()
            if upload.model.display_name == wanted
        }
        return Answer({kind: [{**as_json(model), "name": name} for name, model in names.items()]})

    def _upload(self, place: str, request: Request) -> Answer:
        upload = parsed(aiplatform_v1.UploadModelRequest, request)
        parent = upload.parent_model or f"{place}/models/{100 + len(self.models)}"
        version = 1 + sum(name.startswith(f"{parent}@") for name in self.models)
        self.models[f"{parent}@{version}"] = upload
        made = aiplatform_v1.UploadModelResponse(model=parent, model_version_id=str(version))
        return self._operation(place, made, "upload")

    def _create(self, place: str, request: Request) -> Answer:
        endpoint = parsed(aiplatform_v1.Endpoint, request)
        endpoint.name = f"{place}/endpoints/{200 + len(self.endpoints)}"
        self.endpoints[endpoint.name] = endpoint
        return self._operation(place, endpoint, "create")

    def _deploy(self, name: str, request: Request) -> Answer:
        deployment = parsed(aiplatform_v1.DeployModelRequest, request)
        endpoint = self.endpoints[name]
        model = deployment.deployed_model
        assert model.model in self.models, model.model
        model.id = str(300 + len(endpoint.deployed_models))
        endpoint.deployed_models.append(model)
        assert dict(deployment.traffic_split) == {"0": 100}
        endpoint.traffic_split = {model.id: 100}
        place = name.partition("/endpoints")[0]
        made = aiplatform_v1.DeployModelResponse(deployed_model=model)
        return self._operation(place, made, "deploy")

    def _operation(self, place: str, made: Any, kind: str) -> Answer:
        name = f"{place}/operations/{len(self._results)}"
        proto = type(made).pb(made).DESCRIPTOR.full_name
        response = {"@type": f"type.googleapis.com/{proto}", **as_json(made)}
        failed = self.failure.get(kind)
        self._results[name] = {"error": failed} if failed else {"response": response}
        return Answer({"name": name, "done": False})


def parsed(kind: Any, request: Request) -> Any:
    """The body as a message, which knows every field or the request fails."""
    message = kind()
    json_format.Parse(request.body, kind.pb(message))
    return message


def as_json(message: Any) -> dict[str, Any]:
    """A message as the API writes it."""
    return json.loads(json_format.MessageToJson(type(message).pb(message)))
