"""What pods of Kubeflow get: compared with what KFP's own package writes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest
import yaml

from pipeline.config.cluster import KubeflowConfig
from pipeline.targets.compiled_spec import CompiledSpec
from pipeline.targets.disk import disk_advice
from pipeline.targets.pod_spec import executor_config, pod_refusals
from pipeline.targets.spec import container_resources

GOLDEN = Path(__file__).with_name("golden") / "kfp-kubernetes.yaml"

# The settings of support/write_kfp_kubernetes.py.
SETTINGS = """
image: registry.example/image:1.0
pipeline_root: s3://bucket/root
labels: {team: taxi}
annotations: {sidecar.istio.io/inject: "false"}
node_selector: {cloud.google.com/gke-accelerator: nvidia-l4}
tolerations:
  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
  - {key: team, value: taxi, effect: NoExecute, toleration_seconds: 60}
affinity:
  - match_expressions: [{key: topology.kubernetes.io/zone, operator: In, values: [a, b]}]
  - {match_expressions: [{key: disk, operator: Exists}], weight: 10}
  - {match_fields: [{key: metadata.name, operator: In, values: [node-1]}], weight: 20}
image_pull_secrets: [registry, other]
image_pull_policy: Always
shm_gib: 2
volumes:
  - {claim: vocabularies, mount_path: /mnt/words, sub_path: en}
  - {claim: cache, mount_path: /mnt/cache/}
scratch_volume: {size_gib: 1.5, storage_class: fast}
field_env: {POD: metadata.name, NODE: spec.nodeName}
resources:
  Trainer:
    cpu: 2
    cpu_request: 0.5
    memory_gib: 4
    memory_request_gib: 1.5
    accelerator: nvidia.com/gpu
    timeout_minutes: 90
"""


def profile(**changed):
    return KubeflowConfig(**{**yaml.safe_load(SETTINGS), **changed})


def plain(**given):
    return KubeflowConfig(image="x:1", pipeline_root="s3://bucket/root", **given)


def test_the_platform_spec_is_the_one_that_kfp_kubernetes_writes():
    _, platform = yaml.safe_load_all(GOLDEN.read_text())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executor_config(profile(), "Trainer") == executors["exec-node"]


def test_requests_and_limits_are_those_that_kfp_writes():
    spec = next(iter(yaml.safe_load_all(GOLDEN.read_text())))
    kfp = spec["deploymentSpec"]["executors"]["exec-node"]["container"]["resources"]
    ours = container_resources(profile().of_node("Trainer"))
    assert ours.keys() == {"cpuLimit", "cpuRequest", "memoryLimit", "memoryRequest", "accelerator"}
    kinds = {name: kfp["accelerator"][name] for name in ours["accelerator"]}
    assert {**ours, "accelerator": None} == pytest.approx(
        {name: None if name == "accelerator" else kfp[name] for name in ours}
    )
    assert ours["accelerator"] == kinds


def test_a_replay_knows_the_variables_that_only_the_cluster_sets():
    given = profile(secrets={"minio": {"accesskey": "AWS_ACCESS_KEY_ID"}})
    pods = {"Trainer_executor": executor_config(given, "Trainer")}
    spec = CompiledSpec("kubeflow", {}, "", {}, pods)
    found = spec.cluster_variables({"executorLabel": "Trainer_executor"})
    assert found == ["AWS_ACCESS_KEY_ID", "NODE", "POD"]


def test_without_settings_there_is_no_platform_spec():
    assert executor_config(plain(), "Trainer") == {}


def test_a_nodes_own_settings_replace_those_of_the_profile():
    given = plain(
        node_selector={"pool": "cpu"},
        shm_gib=1,
        resources={"Trainer": {"node_selector": {"pool": "gpu"}}, "Pusher": {"node_selector": {}}},
    )
    assert executor_config(given, "Trainer")["nodeSelector"] == {"labels": {"pool": "gpu"}}
    assert executor_config(given, "Transform")["nodeSelector"] == {"labels": {"pool": "cpu"}}
    assert "nodeSelector" not in executor_config(given, "Pusher")
    assert executor_config(given, "Trainer")["emptyDirMounts"][0]["sizeLimit"] == "1Gi"


def test_the_scratch_volume_is_where_the_launcher_writes():
    """`/gcs` and `/s3` of LocalPathForURI in KFP's backend/src/v2/component/launcher_v2.go."""
    for root, path in (("s3://b/root", "/s3"), ("gs://b/root", "/gcs")):
        given = profile(pipeline_root=root)
        assert executor_config(given, "Trainer")["genericEphemeralVolume"][0]["mountPath"] == path
    default = plain(scratch_volume={"size_gib": 50})
    (volume,) = executor_config(default, "Trainer")["genericEphemeralVolume"]
    assert (volume["size"], volume["defaultStorageClass"]) == ("50Gi", True)
    elsewhere = profile(pipeline_root="hdfs://b/root")
    assert any("use a gs:// or s3://" in each for each in pod_refusals(elsewhere))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tolerations": [{"effect": "NoSchedule"}]}, r"key: missing; name the taint"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            r"value=b: `operator: Exists` compares no value",
        ),
        (
            {"tolerations": [{"key": "a", "toleration_seconds": 5}]},
            r"toleration_seconds=5: only with effect: NoExecute",
        ),
        ({"affinity": [{"weight": 5}]}, r"match_expressions: missing"),
        (
            {"affinity": [{"match_expressions": [{"key": "a", "operator": "In"}]}]},
            r"operator In needs at least one",
        ),
        (
            {
                "affinity": [
                    {"match_expressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}
                ]
            },
            r"operator Gt needs one integer",
        ),
        ({"node_selector": {"-a": "b"}}, r"'-a' is not a Kubernetes key"),
        ({"node_selector": {"a": "b b"}}, r"'b b' is not a Kubernetes label value"),
        ({"image_pull_secrets": ["My_Secret"]}, r"'My_Secret' is not the name of a Kubernetes"),
        ({"image_pull_policy": "always"}, r"'Always', 'IfNotPresent' or 'Never'"),
        ({"volumes": [{"claim": "a.b", "mount_path": "/a"}]}, r"'a\.b' is not a claim that KFP"),
        ({"volumes": [{"claim": "a", "mount_path": "a"}]}, r"'a' is not a folder of a container"),
        (
            {"volumes": [{"claim": "a", "mount_path": "/s3/b"}]},
            r"'/s3/b' is inside /s3.*use another path.*scratch_volume",
        ),
        (
            {"volumes": [{"claim": "a", "mount_path": "/a"}, {"claim": "a", "mount_path": "/b"}]},
            r"claim=a is listed twice",
        ),
        ({"field_env": {"1BAD": "metadata.name"}}, r"'1BAD' is not a variable's name"),
        ({"field_env": {"POD": "metadata.nam"}}, r"'metadata\.nam' is not a field of a pod"),
        (
            {"field_env": {"A": "metadata.name"}, "environment": {"A": "1"}},
            r"A is also in environment",
        ),
        (
            {"resources": {"Trainer": {"cpu": 1, "cpu_request": 2}}},
            r"cpu_request=2 exceeds cpu=1 .*use 1 or less",
        ),
        (
            {"resources": {"Trainer": {"memory_gib": 1, "memory_request_gib": 2}}},
            r"memory_request_gib=2 exceeds memory_gib=1",
        ),
        (
            {
                "resources": {
                    "Trainer": {"accelerator": "nvidia.com/gpu", "ephemeral_storage_gib": 9}
                }
            },
            r"ephemeral_storage_gib=9: KFP cannot.*use scratch_volume: \{size_gib: 9\}",
        ),
    ],
)
def test_what_kubernetes_would_refuse_is_an_error_of_the_field(given, message):
    with pytest.raises(pydantic.ValidationError, match=message):
        plain(**given)


def test_shared_memory_counts_as_memory_of_each_node():
    (found,) = pod_refusals(plain(shm_gib=8, resources={"Trainer": {"memory_gib": 4}}))
    assert "shm_gib=8: counts as memory of Trainer, which gets 4 GiB" in found


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        ({}, ["resources.default.ephemeral_storage_gib: 21"]),
        ({"resources": {"default": {"ephemeral_storage_gib": 21}}}, []),
        (
            {
                "resources": {
                    "default": {"ephemeral_storage_gib": 30},
                    "Trainer": {"accelerator": "nvidia.com/gpu"},
                }
            },
            ["resources.Trainer.scratch_volume: {size_gib: 21}"],
        ),
        ({"scratch_volume": {"size_gib": 50}}, []),
    ],
)
def test_disk_is_proposed_from_the_size_of_the_data(given, lines):
    said = disk_advice(plain(**given), 10.0).splitlines()
    assert [line.strip().removeprefix("cluster.kubeflow.") for line in said[1:]] == lines


def test_small_or_unknown_data_need_no_advice():
    assert disk_advice(plain(), None) == disk_advice(plain(), 0.5) == ""
