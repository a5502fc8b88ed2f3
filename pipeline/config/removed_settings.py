"""Settings of earlier versions, and what to write instead."""

from __future__ import annotations

import re

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
_POD = "give it to cluster.kubeflow.pod, in KFP's own form (docs/pods.md)"
_POD_FIELDS = (
    *("node_selector", "tolerations", "affinity", "volumes", "scratch_volume", "shm_gib"),
    *("annotations", "field_env", "image_pull_secrets", "image_pull_policy"),
)
_SERVING = "give KServe's own fields of the predictor as cluster.kubeflow.server (docs/serving.md)"
_SERVING_FIELDS = (
    *("min_replicas", "max_replicas", "cpu", "memory_gib", "accelerator", "accelerator_count"),
    *("service_account", "version"),
)
_LIMIT = "name columns that may break the rule in normalization.ignore"
_LIMITS = ("train_split", "ids_in_range", "min_max", "gaussian", "pointwise", "bounds")
_JOB = "write {} into the compiled JSON, and start that with submit --spec"
_REPLACEMENTS = {
    "data.csv.formatted": "write plain numbers (docs/own-data.md)",
    **{f"cluster.kubeflow.server.{name}": _SERVING for name in _SERVING_FIELDS},
    **{f"cluster.{name}.cache": "use metadata.cache" for name in ("kubeflow", "vertex")},
    **{f"cluster.{name}.data_gib": "set memory_gib or beam" for name in ("kubeflow", "vertex")},
    "cluster.kubeflow.baseline_model": "nothing: it is the latest blessed one in pipeline_root",
    "cluster.vertex.network": _JOB.format("network"),
    "cluster.vertex.encryption_key": _JOB.format("encryptionSpec"),
    "cluster.vertex.boot_disk_gib": _JOB.format("diskSpec"),
    **{f"cluster.kubeflow.{name}": _POD for name in _POD_FIELDS},
    "cluster.vertex.persistent_resource": "use machine_type",
    "cluster.vertex.restart_on_worker_restart": "set retries",
    **{f"beam.{name}": _BEAM for name in _BEAM_FIELDS},
    **{f"cluster.vertex.server.{name}": _SERVER for name in _SERVER_FIELDS},
    "features.groups.*.encode.date.time_zone": "write the dates as that place's clock shows them",
    "explain.slices": "group the artifact's rows by `raw.<column>` (docs/attributions.md)",
    **{f"normalization.{name}": _LIMIT for name in _LIMITS},
    "normalization.shift": "compare splits by TFX's DistributionValidator",
    "training.communication": "nothing: ring on CPUs, TensorFlow's choice on GPUs",
    "training.early_stopping.min_delta": "nothing: each improvement counts",
    "training.early_stopping.restore_best": "nothing: the weights of the best epoch are exported",
    "training.keep_checkpoints": "nothing: the latest two are kept",
    "training.max_consecutive_skips": "nothing: training ends after 100 skipped windows in a row",
    "training.memory_cache_dir": "nothing: a run keeps its size beside its checkpoints",
    "training.model.low_rank": "use fewer hidden_units",
    "training.model.members": "use hidden_units with knots and linear",
    "training.optimizer.schedule.decay_steps": "nothing: the decay ends with the training",
    "training.optimizer.schedule.final_fraction": "nothing: the rate decays to 0",
    "training.profile_steps": "run `python -m pipeline profile` (docs/profiling.md)",
    "training.sharpness_rows": "call tf.autodiff (docs/gradients.md)",
}


def replacement(field: str) -> str | None:
    """Return what to do instead of a removed setting, by its dotted path; None for any other."""
    # A target's `beam` has the fields of `beam`.
    for section in ("cluster.kubeflow.beam.", "cluster.vertex.beam."):
        if field.startswith(section):
            field = f"beam.{field.removeprefix(section)}"
    return _REPLACEMENTS.get(re.sub(r"\.\d+\.", ".*.", field))
