"""`python -m pipeline serve-manifest`: write the files that deploy a pushed model and a request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.output_file import output_file
from pipeline.serving.exported_model import (
    RAW,
    SERVING_DEFAULT,
    ExportedModel,
    find_version,
    mapped,
    read_model,
)
from pipeline.serving.kserve import inference_service
from pipeline.serving.requests import ServingTarget, first_rows, request_body, rows_file
from pipeline.serving.vertex_upload import upload_request

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig

_REQUEST_ROWS = 3
_SCHEMES: dict[ServingTarget, tuple[str, ...]] = {
    "kserve": ("s3", "gs", "pvc", "hdfs", "https", "http"),
    "vertex": ("gs",),
}
_POD_LABEL = "serving.kserve.io/inferenceservice"


@dataclass(frozen=True)
class ManifestOptions:
    """The model to serve, and the files to write.

    Attributes:
        target: The server.
        model: Place of the model, as the target reads it.
        maps: Remote place -> folder that replaces it on this machine.
        output: File to write; None: `<name>-<target>` in the current folder.
        rows: File whose first rows become a request; None: no request is written.
    """

    target: ServingTarget
    model: str
    maps: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None
    rows: str | None = None


@dataclass(frozen=True)
class Manifest:
    """The result of `serve-manifest`.

    Attributes:
        model: The model to serve.
        uri: Place that the target reads.
        name: Name of the service or endpoint.
        content: InferenceService, or the request that uploads the model.
        file: File of the manifest.
        request: File of the request, and its signature; None: no request was written.
    """

    model: ExportedModel
    uri: str
    name: str
    content: JsonObject
    file: Path
    request: tuple[Path, str] | None


def write_manifest(options: ManifestOptions, config: PipelineConfig) -> Manifest:
    """Write the manifest of a model, and a request for it if rows are given.

    Args:
        options: The model to serve, and the files to write.
        config: The pipeline, whose `cluster` has the server's settings.

    Raises:
        ConfigError: The model cannot be read, or the target cannot serve it from that place.
    """
    name, cluster = config.name, config.cluster
    check_place(options.model, options.target)
    model = read_model(find_version(mapped(options.model, options.maps)))
    uri = versions_folder(options.model, model, options.maps)
    if options.target == "kserve":
        content = inference_service(model, uri, name, cluster.kubeflow if cluster else None)
    else:
        content = upload_request(model, uri, name, cluster.vertex if cluster else None)
    endings = {"kserve": "kserve.yaml", "vertex": "vertex-upload.json"}
    file = options.output or Path(f"{name}-{endings[options.target]}")
    request = _request(options, model, config, file) if options.rows else None
    with output_file(file) as stream:
        stream.write(_as_text(options.target, content))
    return Manifest(model, uri, name, content, file, request)


def check_place(place: str, target: ServingTarget) -> None:
    """Raise if the target cannot read models from a place.

    Raises:
        ConfigError: The place is a folder of this machine or, for Vertex, is not on Google Cloud.
    """
    scheme = place.partition("://")[0] if "://" in place else ""
    if scheme not in _SCHEMES[target]:
        known = ", ".join(f"{each}://" for each in _SCHEMES[target])
        raise ConfigError(
            f"--model={place}: {target} reads models from {known}; name the place there, and the "
            "folder that stands for it on this machine with --map PREFIX=FOLDER."
        )


def versions_folder(place: str, model: ExportedModel, maps: Mapping[str, str]) -> str:
    """Return the folder of versions: TensorFlow Serving loads the highest-numbered one.

    Args:
        place: The folder, or its highest-numbered version.
        model: The model that was found there.
        maps: Remote place -> folder on this machine.

    Raises:
        ConfigError: The place is a version other than the highest, or not a numbered folder.
    """
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


def _request(
    options: ManifestOptions, model: ExportedModel, config: PipelineConfig, file: Path
) -> tuple[Path, str]:
    assert options.rows is not None
    # Vertex' predict passes on `instances` alone, so that `serving_default` answers.
    signature = RAW if options.target == "kserve" else SERVING_DEFAULT
    with rows_file(options.rows, model.place, csv_options=config.data.csv) as found:
        rows = first_rows(found, model, _REQUEST_ROWS)
    path = file.with_name(f"{file.stem}-request.json")
    body = request_body(model, signature, rows, range(len(rows)))
    with output_file(path) as stream:
        stream.write(body.decode() + "\n")
    return path, signature


def _as_text(target: ServingTarget, content: JsonObject) -> str:
    if target == "vertex":
        return json.dumps(content, indent=2) + "\n"
    import yaml

    return yaml.safe_dump(content, sort_keys=False)


def next_steps(manifest: Manifest, target: ServingTarget) -> Sequence[str]:
    """Return the lines of the commands that deploy a model and call it."""
    body = manifest.request[0] if manifest.request else "REQUEST.json"  # --rows writes one
    if target == "kserve":
        url = f"http://localhost:8080/v1/models/{manifest.name}"
        pod = f"$(kubectl get pod -n NAMESPACE -l {_POD_LABEL}={manifest.name} -o name | head -1)"
        return [
            f"kubectl apply -n NAMESPACE -f {manifest.file}",
            f"kubectl wait -n NAMESPACE --for=condition=Ready isvc/{manifest.name} --timeout=300s",
            f"kubectl port-forward -n NAMESPACE {pod} 8080:8080 &",
            f"curl -d @{body} {url}:predict",
        ]
    return [
        "curl -X POST -H 'Content-Type: application/json' "
        '-H "Authorization: Bearer $(gcloud auth print-access-token)" '
        f"-d @{manifest.file} "
        "https://REGION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/REGION/models:upload",
        "gcloud ai endpoints create --region=REGION --display-name=" + manifest.name,
        "gcloud ai endpoints deploy-model ENDPOINT --region=REGION --model=MODEL "
        f"--display-name={manifest.name} --machine-type=n1-standard-2",
        f"gcloud ai endpoints predict ENDPOINT --region=REGION --json-request={body}",
    ]
