"""Write golden/kfp-kubernetes.yaml: the platform spec of kfp-kubernetes 2.17.0 for some settings.

The package needs another protobuf than a stack has, so it is in no lock file:

    uv run --no-project --python 3.11 --with kfp==2.17.0 --with kfp-kubernetes==2.17.0 \
        tests/pipeline/targets/support/write_kfp_kubernetes.py

kfp-kubernetes 1.5.0, of kfp 2.13.0, has neither node affinity nor `sub_path`.
"""

from __future__ import annotations

from pathlib import Path

from kfp import compiler, dsl
from kfp import kubernetes as k8s

GOLDEN = Path(__file__).parents[1] / "golden" / "kfp-kubernetes.yaml"


@dsl.container_component
def node():
    return dsl.ContainerSpec(image="registry.example/image:1.0", command=["true"])


@dsl.pipeline(name="kfp-kubernetes")
def pipeline():
    task = node()
    k8s.add_node_selector(task, "cloud.google.com/gke-accelerator", "nvidia-l4")
    k8s.add_toleration(task, key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    k8s.add_toleration(
        task, key="team", operator="Equal", value="taxi", effect="NoExecute", toleration_seconds=60
    )
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}
    k8s.add_node_affinity(task, match_expressions=[zones])
    k8s.add_node_affinity(
        task, match_expressions=[{"key": "disk", "operator": "Exists"}], weight=10
    )
    name = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    k8s.add_node_affinity(task, match_fields=[name], weight=20)
    k8s.set_image_pull_secrets(task, ["registry", "other"])
    k8s.set_image_pull_policy(task, "Always")
    k8s.empty_dir_mount(
        task,
        volume_name="tfx-largebatch-shm",
        mount_path="/dev/shm",
        medium="Memory",
        size_limit="2Gi",
    )
    k8s.mount_pvc(task, pvc_name="vocabularies", mount_path="/mnt/words", sub_path="en")
    k8s.mount_pvc(task, pvc_name="cache", mount_path="/mnt/cache")
    k8s.add_ephemeral_volume(
        task,
        volume_name="tfx-largebatch-scratch",
        mount_path="/s3",
        access_modes=["ReadWriteOnce"],
        size="1536Mi",
        storage_class_name="fast",
    )
    k8s.add_pod_label(task, "team", "taxi")
    k8s.add_pod_annotation(task, "sidecar.istio.io/inject", "false")
    k8s.use_field_path_as_env(task, "NODE", "spec.nodeName")
    k8s.use_field_path_as_env(task, "POD", "metadata.name")
    k8s.set_timeout(task, 5400)
    task.set_cpu_request("0.5").set_cpu_limit("2")
    task.set_memory_request("1536Mi").set_memory_limit("4Gi")
    task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)


if __name__ == "__main__":
    compiler.Compiler().compile(pipeline, str(GOLDEN))
    how = "# Written by support/write_kfp_kubernetes.py, which says how.\n"
    GOLDEN.write_text(how + GOLDEN.read_text())
