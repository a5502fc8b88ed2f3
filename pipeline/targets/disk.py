"""How much disk a node of Kubeflow needs: KFP's launcher downloads its inputs first."""

from __future__ import annotations

import math

from pipeline.config.cluster import DEFAULT_NODE, KubeflowConfig

# The examples and the transformed examples of a CSV, both compressed, take 0.38 and 0.29 of its
# size in the taxi pipeline (1,922,812 bytes), and at most one node reads both. Rows that do not
# compress, or derived columns, take more: twice the data's size leaves room for those.
_GIB_PER_GIB = 2.0
# Models, checkpoints, graphs and logs.
_GIB_BESIDES = 1.0
# Below it, any machine has the room.
_SMALL_GIB = 1.0


def needed_gib(data_gib: float) -> int:
    """Returns the disk that a node needs for data of a size, both in GiB."""
    return math.ceil(_GIB_BESIDES + _GIB_PER_GIB * data_gib)


def disk_advice(profile: KubeflowConfig, data_gib: float | None) -> str:
    """Returns what to say about the disk of nodes when a pipeline is compiled; "" for nothing.

    Args:
        profile: the target's section of `cluster:`.
        data_gib: size of the data; None where it is not known.
    """
    if data_gib is None or data_gib < _SMALL_GIB:
        return ""
    needed = needed_gib(data_gib)
    section = profile.section
    small = []
    for name in dict.fromkeys([DEFAULT_NODE, *profile.resources]):
        node, scratch = profile.of_node(name), profile.pod_settings(name).scratch_volume
        has = max(node.ephemeral_storage_gib or 0.0, scratch.size_gib if scratch else 0.0)
        if has < needed:
            field = f"{section}.resources.{name}"
            small.append(
                f"{field}.scratch_volume: {{size_gib: {needed}}}"
                if scratch or node.accelerator
                else f"{field}.ephemeral_storage_gib: {needed}"
            )
    if not small:
        return ""
    return (
        f"Nodes download their input artifacts to disk: about {needed} GiB each for "
        f"{data_gib:.1f} GiB of data. To reserve it:\n" + "\n".join(f"  {line}" for line in small)
    )
