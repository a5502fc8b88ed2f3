"""The requests that serve a pushed model on Vertex: bodies of its REST API, version 1.

In order: `POST .../models:upload`, `POST .../endpoints` and `POST .../endpoints/ID:deployModel`.
"""

from __future__ import annotations

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import VertexConfig
from pipeline.config.servers import VertexServerConfig
from pipeline.serving.exported_model import ExportedModel
from pipeline.serving.server_versions import is_prebuilt, vertex_image

_PORT = 8501
_MODEL = "model"


def container_image(model: ExportedModel, profile: VertexConfig | None) -> str:
    """Return the image that serves a model.

    Raises:
        ConfigError: No image is named, and there is no prebuilt one.
    """
    server = profile.server if profile else VertexServerConfig()
    return server.image or vertex_image(
        model.tensorflow, accelerated=server.accelerator is not None
    )


def vertex_requests(
    uri: str, image: str, name: str, profile: VertexConfig | None
) -> dict[str, JsonObject]:
    """Return the bodies of the three requests.

    Args:
        uri: The SavedModel for a prebuilt container, else the folder of its versions.
        image: Image that serves the model.
        name: Name of the model and of the endpoint.
        profile: `cluster.vertex`; None: the defaults of its fields.

    Raises:
        ConfigError: The name is empty or too long.
    """
    if not name or len(name) > 128:
        raise ConfigError(f"--name={name}: Vertex takes 1 to 128 characters.")
    server = profile.server if profile else VertexServerConfig()
    labels = {"labels": dict(profile.labels)} if profile and profile.labels else {}
    container: JsonObject = {"imageUri": image}
    if not is_prebuilt(image):
        container |= {
            "command": ["/usr/bin/tensorflow_model_server"],
            "args": [
                f"--rest_api_port={_PORT}",
                f"--model_name={_MODEL}",
                "--model_base_path=$(AIP_STORAGE_URI)",  # Vertex' copy of the model's folder
            ],
            "ports": [{"containerPort": _PORT}],
            "predictRoute": f"/v1/models/{_MODEL}:predict",
            "healthRoute": f"/v1/models/{_MODEL}",
        }
    machine: JsonObject = {"machineType": server.machine_type}
    if server.accelerator:
        machine |= {
            "acceleratorType": server.accelerator,
            "acceleratorCount": server.accelerator_count,
        }
    deployed: JsonObject = {
        "displayName": name,
        "dedicatedResources": {
            "machineSpec": machine,
            "minReplicaCount": server.min_replicas,
            "maxReplicaCount": server.max_replicas,
        },
    }
    if account := server.service_account or (profile.service_account if profile else None):
        deployed["serviceAccount"] = account
    return {
        "uploadModel": {
            "model": {
                "displayName": name,
                "artifactUri": uri,
                "containerSpec": container,
                **labels,
            }
        },
        "createEndpoint": {"displayName": name, **labels},
        "deployModel": {"deployedModel": deployed, "trafficSplit": {"0": 100}},
    }
