"""A KServe InferenceService of a pushed model.

Source: KServe's v1beta1 API and its runtime `kserve-tensorflow-serving`, which starts
`tensorflow_model_server --model_base_path=/mnt/models --rest_api_port=8080` (0.13 to 0.20).
"""

from __future__ import annotations

import re

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.config.cluster import KserveConfig, KubeflowConfig
from pipeline.serving.exported_model import ExportedModel
from pipeline.serving.server_versions import serving_release

# KServe's IsvcNameFmt; the longest label of a host name that Kubernetes allows.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

# A release of tensorflow/serving; the tag for GPUs ends with -gpu.
_CPU_TAG = re.compile(r"\d+\.\d+\.\d+")


def inference_service(
    model: ExportedModel, uri: str, name: str, profile: KubeflowConfig | None
) -> JsonObject:
    """Return the manifest.

    Args:
        model: The model to serve.
        uri: Folder of numbered versions, as the cluster reads it.
        name: Name of the service, and of the model in its URL.
        profile: `cluster.kubeflow`; None: the defaults of its fields.

    Raises:
        ConfigError: KServe does not accept the name, or no matching server is known.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name={name}: KServe takes lower-case letters, digits and `-`, first a letter, at "
            "most 63; use a name such as chicago-taxi."
        )
    server = profile.server if profile else KserveConfig()
    account = server.service_account or (profile.service_account if profile else None)
    release = server.version or serving_release(model.tensorflow, "cluster.kubeflow.server.version")
    resources = {"cpu": f"{server.cpu:g}", "memory": f"{round(server.memory_gib * 1024)}Mi"}
    if server.accelerator:
        resources[server.accelerator] = str(server.accelerator_count)
        if server.version is None:
            release += "-gpu"
        elif _CPU_TAG.fullmatch(server.version):
            raise ConfigError(
                f"cluster.kubeflow.server.version={server.version}: tensorflow/serving of this tag "
                f"does not use a GPU, and server.accelerator={server.accelerator} asks for one; "
                f"use version: {server.version}-gpu, or leave the accelerator out."
            )
    predictor: JsonObject = {
        "minReplicas": server.min_replicas,
        "maxReplicas": server.max_replicas,
    }
    if account:
        predictor["serviceAccountName"] = account
    predictor["model"] = {
        "modelFormat": {"name": "tensorflow", "version": "2"},
        "protocolVersion": "v1",
        "runtimeVersion": release,
        "storageUri": uri,
        "resources": {"requests": dict(resources), "limits": dict(resources)},
    }
    labels = {"labels": dict(profile.labels)} if profile and profile.labels else {}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, **labels},
        "spec": {"predictor": predictor},
    }
