"""Settings of earlier versions, and what to write instead."""

from __future__ import annotations

_BEAM = "pass Beam's own options as beam.options: [--name=value] (docs/beam-engines.md)"
_SERVER = "give it to `gcloud ai endpoints deploy-model`; serve-manifest prints the command"
_BEAM_FIELDS = (
    *("extra_args", "job_endpoint", "environment", "worker_pool", "worker_image", "probe_seconds"),
    *("rest", "parallelism", "project", "region", "temp_location", "sdk_container_image"),
    *("max_workers", "machine_type", "disk_gb", "service_account"),
)
_SERVER_FIELDS = (
    *("machine_type", "accelerator", "accelerator_count", "min_replicas", "max_replicas"),
    "service_account",
)
_REPLACEMENTS = {
    **{f"beam.{name}": _BEAM for name in _BEAM_FIELDS},
    **{f"cluster.vertex.server.{name}": _SERVER for name in _SERVER_FIELDS},
    "explain.slices": "group the artifact's rows by `raw.<column>` (docs/attributions.md)",
    "normalization.shift": "compare splits by TFX's DistributionValidator",
    "training.communication": "nothing: a ring on CPUs, TensorFlow's choice on GPUs",
    "training.memory_cache_dir": "nothing: a run keeps its size beside its checkpoints",
    "training.model.kind": "use hidden_units with knots and linear",
    "training.model.low_rank": "use fewer hidden_units",
    "training.model.members": "use hidden_units with knots and linear",
    "training.profile_steps": "run `python -m pipeline profile` (docs/profiling.md)",
    "training.sharpness_rows": "call tf.autodiff (docs/gradients.md)",
}


def replacement(field: str) -> str | None:
    """Return what to do instead of a removed setting, by its dotted path; None for any other."""
    # A target's `beam` has the fields of `beam`.
    for section in ("cluster.kubeflow.beam.", "cluster.vertex.beam."):
        if field.startswith(section):
            field = f"beam.{field.removeprefix(section)}"
    return _REPLACEMENTS.get(field)
