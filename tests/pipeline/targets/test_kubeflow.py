"""What pods of Kubeflow get: compared with what KFP's own package writes, and what is refused."""

from __future__ import annotations

import pydantic
import pytest
from compiled_taxi import GOLDEN, documents_of

from pipeline.config.cluster import KubeflowConfig
from pipeline.targets.compiled_spec import CompiledSpec
from pipeline.targets.kubeflow import executor_config
from pipeline.targets.spec import _container_resources


def golden():
    """The container and the pod of the node that KFP's own package wrote."""
    spec, platform = documents_of((GOLDEN / "kfp-kubernetes.yaml").read_text())
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return spec["deploymentSpec"]["executors"]["exec-node"]["container"], pods["exec-node"]


def profile(**changed):
    """Its settings as a user writes them: names once, labels and times with those of the nodes."""
    _, pod = golden()
    del pod["activeDeadlineSeconds"]
    for item in (*pod["imagePullSecret"], *pod["pvcMount"]):
        (other,) = (key for key in item if key.endswith("Parameter"))
        del item[other]
    pod["tolerations"][1]["tolerationSeconds"] = 60
    trainer = {"cpu": 2, "memory_gib": 4, "accelerator": "nvidia.com/gpu", "timeout_minutes": 90}
    labels, resources = pod["podMetadata"].pop("labels"), {"Trainer": trainer}
    return plain(**{"labels": labels, "pod": pod, "resources": resources, **changed})


def plain(**given):
    return KubeflowConfig(image="x:1", pipeline_root="s3://bucket/root", **given)


def test_pods_and_limits_are_those_that_kfp_writes():
    container, pod = golden()
    assert executor_config(profile(), "Trainer") == pod
    kfp, ours = container["resources"], _container_resources(profile().of_node("Trainer"))
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
