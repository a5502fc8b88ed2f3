"""`python -m pipeline serve-manifest`: write the files that deploy a pushed model and a request.

KServe gets an InferenceService, for its v1beta1 API and its runtime `kserve-tensorflow-serving`,
which starts `tensorflow_model_server --model_base_path=/mnt/models --rest_api_port=8080` (0.13 to
0.20). Vertex gets the body of `models:upload`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.output_file import output_file
from pipeline.config.cluster import KubeflowConfig, VertexConfig
from pipeline.config.config import PipelineConfig
from pipeline.run.predictor import find_version
from pipeline.serving.model import (
    SIGNATURES,
    ExportedModel,
    ServingTarget,
    mapped,
    read_model,
    request_body,
)

_SERVING_RELEASES = {
    "2.16": "2.16.1",
    "2.17": "2.17.1",
    "2.18": "2.18.1",
    "2.19": "2.19.1",
    "2.20": "2.20.0",
}
"""TensorFlow version -> the newest release of github.com/tensorflow/serving for it.

A server can load models of its TensorFlow version or an older one; TensorFlow promises no more.
"""

_SCHEMES: dict[ServingTarget, tuple[str, ...]] = {
    "kserve": ("s3", "gs", "pvc", "hdfs", "https", "http"),
    "vertex": ("gs",),
}
_ENDINGS = {"kserve": "kserve.yaml", "vertex": "vertex-upload.json"}
# KServe's IsvcNameFmt; the longest label of a host name that Kubernetes allows.
_PORT = 8501
_MODEL = "model"


def write_manifest(
    target: ServingTarget,
    place: str,
    config: PipelineConfig,
    *,
    maps: Mapping[str, str] | None = None,
    output: Path | None = None,
    rows: str | None = None,
) -> list[str]:
    """Write the manifest of a model; return lines that say how to deploy and call it.

    Args:
        target: The server.
        place: Folder of the model, as the target reads it.
        config: The pipeline, whose name is the service's, and whose `cluster` has its settings.
        maps: Remote place -> folder that replaces it on this machine.
        output: File to write; None: `<name>-<target>` in the current folder.
        rows: File whose first rows become a request; None: no request is written.

    Raises:
        ConfigError: The model cannot be read, or the target cannot serve it from that place.
    """
    name, cluster = config.name, config.cluster
    if place.partition("://")[0] not in _SCHEMES[target] or "://" not in place:
        known = ", ".join(f"{each}://" for each in _SCHEMES[target])
        raise ConfigError(
            f"--model={place}: {target} reads models from {known}; name the place there, and the "
            "folder that stands for it on this machine with --map PREFIX=FOLDER."
        )
    model = read_model(find_version(mapped(place, maps or {})))
    uri = _versions_folder(place, model, maps or {})
    file = output or Path(f"{name}-{_ENDINGS[target]}")
    if target == "kserve":
        import yaml

        content = _inference_service(model, uri, name, cluster.kubeflow if cluster else None)
        text = yaml.safe_dump(content, sort_keys=False)
    else:
        content = _upload_request(model, uri, name, cluster.vertex if cluster else None)
        text = json.dumps(content, indent=2) + "\n"
    version = model.place.rpartition("/")[2]
    said = [f"{file}: version {version} of {uri} for {target}, written by TensorFlow "]
    said[0] += model.tensorflow
    request = Path("REQUEST.json")  # --rows writes one
    if rows:
        body = request_body(target, model, rows, config.data.csv)
        request = file.with_name(f"{file.stem}-request.json")
        with output_file(request) as stream:
            stream.write(body)
        said.append(f"{request}: a request of signature {SIGNATURES[target]}")
    with output_file(file) as stream:
        stream.write(text)
    return [*said, "Next:", *(f"  {line}" for line in _next_steps(target, name, file, request))]


def _versions_folder(place: str, model: ExportedModel, maps: Mapping[str, str]) -> str:
    """Return the folder of versions: TensorFlow Serving loads the highest-numbered one."""
    place = place.rstrip("/")
    found = model.place.rpartition("/")[2]
    if mapped(place, maps).rstrip("/") != model.place:
        return place
    above = place.rpartition("/")[0]
    if not found.isdigit():
        raise ConfigError(
            f"--model={place}: TensorFlow Serving looks for numbered versions below a folder; move "
            f"the model to {place}/1, and give {place}."
        )
    highest = find_version(mapped(above, maps)).rpartition("/")[2]
    if highest != found:
        raise ConfigError(
            f"--model={place}: TensorFlow Serving loads the highest-numbered version below a "
            f"folder, which is {highest}, not {found}. Copy this version to a separate folder, or "
            f"give {above}."
        )
    return above


def _inference_service(
    model: ExportedModel, uri: str, name: str, profile: KubeflowConfig | None
) -> JsonObject:
    """Return the manifest of a service, whose name is also the model's in its URL."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise ConfigError(
            f"name={name}: KServe takes lower-case letters, digits and `-`, first a letter, at "
            "most 63; use a name such as chicago-taxi."
        )
    given = profile.server if profile else {}
    model_given = given.get("model", {})
    if not isinstance(model_given, dict):
        raise ConfigError(
            f"cluster.kubeflow.server.model={model_given!r}: give a mapping of KServe's fields, "
            "such as {runtimeVersion: 2.16.1-gpu}."
        )
    release = model_given.get("runtimeVersion") or _serving_release(model.tensorflow)
    size = {"cpu": "1", "memory": "2Gi"}
    predictor: JsonObject = {"minReplicas": 1, "maxReplicas": 1}
    if profile and profile.service_account:
        predictor["serviceAccountName"] = profile.service_account
    predictor |= given
    predictor["model"] = {
        "modelFormat": {"name": "tensorflow", "version": "2"},
        "protocolVersion": "v1",
        "storageUri": uri,
        "resources": {"requests": dict(size), "limits": dict(size)},
        **model_given,
        "runtimeVersion": release,
    }
    labels = {"labels": dict(profile.labels)} if profile and profile.labels else {}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, **labels},
        "spec": {"predictor": predictor},
    }


def _serving_release(tensorflow: str) -> str:
    """Return the release of TensorFlow Serving for a model of a TensorFlow version."""
    release = _SERVING_RELEASES.get(_minor_version(tensorflow))
    if release is None:
        raise ConfigError(
            f"cluster.kubeflow.server.model.runtimeVersion: TensorFlow {tensorflow} wrote the "
            "model, and no release of TensorFlow Serving for it is known here (the newest is "
            f"{max(_SERVING_RELEASES.values())}). Name the tag of a tensorflow/serving image of at "
            "least that version."
        )
    return release


def _minor_version(tensorflow: str) -> str:
    """Return the minor version, such as `2.16` of `2.16.2`."""
    return ".".join(tensorflow.split(".")[:2])


def _upload_request(
    model: ExportedModel, uri: str, name: str, profile: VertexConfig | None
) -> JsonObject:
    """Return the body of `models:upload`."""
    if not name or len(name) > 128:
        raise ConfigError(f"name={name}: Vertex takes 1 to 128 characters.")
    image = profile.server.image if profile else None
    if image is None:
        minor = _minor_version(model.tensorflow)
        release = _SERVING_RELEASES.get(minor, minor)
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


def _next_steps(target: ServingTarget, name: str, file: Path, request: Path) -> list[str]:
    """Return the lines of the commands that deploy a model and call it."""
    if target == "kserve":
        url = f"http://localhost:8080/v1/models/{name}"
        label = f"serving.kserve.io/inferenceservice={name}"
        pod = f"$(kubectl get pod -n NAMESPACE -l {label} -o name | head -1)"
        return [
            f"kubectl apply -n NAMESPACE -f {file}",
            f"kubectl wait -n NAMESPACE --for=condition=Ready isvc/{name} --timeout=300s",
            f"kubectl port-forward -n NAMESPACE {pod} 8080:8080 &",
            f"curl -d @{request} {url}:predict",
        ]
    return [
        "curl -X POST -H 'Content-Type: application/json' "
        '-H "Authorization: Bearer $(gcloud auth print-access-token)" '
        f"-d @{file} "
        "https://REGION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/REGION/models:upload",
        f"gcloud ai endpoints create --region=REGION --display-name={name}",
        "gcloud ai endpoints deploy-model ENDPOINT --region=REGION --model=MODEL "
        f"--display-name={name} --machine-type=n1-standard-2",
        f"gcloud ai endpoints predict ENDPOINT --region=REGION --json-request={request}",
    ]
