"""The disk that a node on Kubeflow needs: KFP's launcher downloads its inputs first."""

from __future__ import annotations

import math

from pipeline.config.cluster import DEFAULT_NODE, KubeflowConfig

# In the taxi pipeline (1,922,812 bytes of CSV), the examples and the transformed examples, both
# compressed, take 0.38 and 0.29 of its size, and a node reads at most both. Rows that do not
# compress and derived columns take more: twice the data's size leaves room for those.
_GIB_PER_GIB = 2.0
# For models, checkpoints, graphs and logs.
_GIB_BESIDES = 1.0
# Any machine has enough disk for less data.
_SMALL_GIB = 1.0


def _needed_gib(data_gib: float) -> int:
    """Return the disk in GiB that a node needs for data of a size in GiB."""
    return math.ceil(_GIB_BESIDES + _GIB_PER_GIB * data_gib)


def disk_advice(profile: KubeflowConfig, data_gib: float | None) -> str:
    """Return advice on the disk of nodes for data of a size in GiB; "" if none is needed."""
    if data_gib is None or data_gib < _SMALL_GIB:
        return ""
    needed = _needed_gib(data_gib)
    section = profile.section
    small = []
    for name in dict.fromkeys([DEFAULT_NODE, *profile.resources]):
        node = profile.of_node(name)
        if "genericEphemeralVolume" in profile.pod_of(name):
            continue  # the volume's size is the user's choice
        if node.accelerator:
            path = "/s3" if profile.pipeline_root.startswith("s3://") else "/gcs"
            small.append(
                f"{section}.resources.{name}.pod.genericEphemeralVolume: [{{volumeName: scratch, "
                f"mountPath: {path}, size: {needed}Gi, accessModes: [ReadWriteOnce]}}]"
            )
        elif (node.ephemeral_storage_gib or 0.0) < needed:
            small.append(f"{section}.resources.{name}.ephemeral_storage_gib: {needed}")
    if not small:
        return ""
    return (
        f"Nodes download their input artifacts to disk: about {needed} GiB each for "
        f"{data_gib:.1f} GiB of data. To reserve it:\n" + "\n".join(f"  {line}" for line in small)
    )
