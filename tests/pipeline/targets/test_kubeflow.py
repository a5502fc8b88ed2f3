"""What pods of Kubeflow get: compared with what KFP's own package writes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest
import yaml

from pipeline.config.cluster import KubeflowConfig
from pipeline.targets.compiled_spec import CompiledSpec
from pipeline.targets.kubeflow import executor_config
from pipeline.targets.spec import _container_resources

GOLDEN = Path(__file__).with_name("golden") / "kfp-kubernetes.yaml"

# The settings of support/write_kfp_kubernetes.py.
SETTINGS = """
image: registry.example/image:1.0
pipeline_root: s3://bucket/root
labels: {team: taxi}
pod:
  podMetadata: {annotations: {sidecar.istio.io/inject: "false"}}
  nodeSelector: {labels: {cloud.google.com/gke-accelerator: nvidia-l4}}
  tolerations:
    - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
    - {key: team, operator: Equal, value: taxi, effect: NoExecute, tolerationSeconds: 60}
  nodeAffinity:
    - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a, b]}]
    - {matchExpressions: [{key: disk, operator: Exists}], weight: 10}
    - {matchFields: [{key: metadata.name, operator: In, values: [node-1]}], weight: 20}
  imagePullSecret: [{secretName: registry}, {secretName: other}]
  imagePullPolicy: Always
  emptyDirMounts:
    - {volumeName: tfx-largebatch-shm, mountPath: /dev/shm, medium: Memory, sizeLimit: 2Gi}
  pvcMount:
    - {constant: vocabularies, mountPath: /mnt/words, subPath: en}
    - {constant: cache, mountPath: /mnt/cache}
  genericEphemeralVolume:
    - volumeName: tfx-largebatch-scratch
      mountPath: /s3
      accessModes: [ReadWriteOnce]
      size: 1536Mi
      storageClassName: fast
  fieldPathAsEnv:
    - {name: NODE, fieldPath: spec.nodeName}
    - {name: POD, fieldPath: metadata.name}
resources:
  Trainer: {cpu: 2, memory_gib: 4, accelerator: nvidia.com/gpu, timeout_minutes: 90}
"""


def profile(**changed):
    return KubeflowConfig(**{**yaml.safe_load(SETTINGS), **changed})


def plain(**given):
    return KubeflowConfig(image="x:1", pipeline_root="s3://bucket/root", **given)


def test_the_platform_spec_is_the_one_that_kfp_kubernetes_writes():
    _, platform = yaml.safe_load_all(GOLDEN.read_text())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executor_config(profile(), "Trainer") == executors["exec-node"]


def test_limits_are_those_that_kfp_writes():
    spec = next(iter(yaml.safe_load_all(GOLDEN.read_text())))
    kfp = spec["deploymentSpec"]["executors"]["exec-node"]["container"]["resources"]
    ours = _container_resources(profile().of_node("Trainer"))
    assert ours.keys() == {"cpuLimit", "memoryLimit", "accelerator"}
    assert ours["accelerator"].items() <= kfp["accelerator"].items()
    for name in ("cpuLimit", "memoryLimit"):
        assert ours[name] == pytest.approx(kfp[name])


def test_a_replay_knows_the_variables_that_only_the_cluster_sets():
    given = profile(secrets={"minio": {"accesskey": "AWS_ACCESS_KEY_ID"}})
    pods = {"Trainer_executor": executor_config(given, "Trainer")}
    spec = CompiledSpec("kubeflow", {}, "", {}, pods)
    found = spec.cluster_variables({"executorLabel": "Trainer_executor"})
    assert found == ["AWS_ACCESS_KEY_ID", "NODE", "POD"]


def test_a_nodes_own_settings_replace_those_of_the_profile():
    given = plain(
        pod={"nodeSelector": {"labels": {"pool": "cpu"}}, "imagePullPolicy": "Always"},
        resources={
            "Trainer": {"pod": {"nodeSelector": {"labels": {"pool": "gpu"}}}},
            "Pusher": {"pod": {"nodeSelector": {}}},
        },
    )
    assert executor_config(given, "Trainer")["nodeSelector"] == {"labels": {"pool": "gpu"}}
    assert executor_config(given, "Transform")["nodeSelector"] == {"labels": {"pool": "cpu"}}
    assert executor_config(given, "Pusher") == {"imagePullPolicy": "Always"}
    assert executor_config(plain(), "Trainer") == {}


def test_an_unknown_field_of_a_pod_is_an_error():
    for pod, message in (
        ({"toleration": []}, r"toleration is unknown; did you mean 'tolerations'"),
        ({"tolerations": [{"efect": "x"}]}, r"tolerations: efect .*mean 'effect'"),
        ({"nodeSelector": "gpu"}, r"nodeSelector is 'gpu'; use a mapping with labels"),
        ({"pvcMount": [{"constant": "a"}]}, r"pvcMount: .*lacks mountPath"),
    ):
        with pytest.raises(pydantic.ValidationError, match=message):
            plain(pod=pod)
