"""The request that uploads a pushed model to Vertex: the body of `models:upload`."""

from __future__ import annotations

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import VertexConfig
from pipeline.serving.exported_model import ExportedModel
from pipeline.serving.server_versions import SERVING_RELEASES, minor_version

_PORT = 8501
_MODEL = "model"


def upload_request(
    model: ExportedModel, uri: str, name: str, profile: VertexConfig | None
) -> JsonObject:
    """Return the body of the request.

    Args:
        model: The model to serve.
        uri: Folder of the model's numbered versions.
        name: Name of the model.
        profile: `cluster.vertex`; None: the defaults of its fields.

    Raises:
        ConfigError: The name is empty or too long, or no image is set.
    """
    if not name or len(name) > 128:
        raise ConfigError(f"name={name}: Vertex takes 1 to 128 characters.")
    image = profile.server.image if profile else None
    if image is None:
        minor = minor_version(model.tensorflow)
        release = SERVING_RELEASES.get(minor, minor)
        raise ConfigError(
            f"cluster.vertex.server.image is missing: TensorFlow {model.tensorflow} wrote the "
            "model, and Google's prebuilt containers end with 2.15. Copy "
            f"tensorflow/serving:{release} to your Artifact Registry and name it there."
        )
    container: JsonObject = {
        "imageUri": image,
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
    labels = {"labels": dict(profile.labels)} if profile and profile.labels else {}
    return {
        "model": {"displayName": name, "artifactUri": uri, "containerSpec": container, **labels}
    }
