"""Where Beam runs: one model per engine, its pipeline options, and what must be there for it.

Table of contents:

* `presets`: `beam:` in the YAML, and the pipeline options that it stands for.
* `options`: these options, checked by Beam's own parser and validator, and explained.
* `preflight`: endpoints, slots and workers, asked before a job is submitted.
* `pool_check`: whether a worker pool starts workers that can run.
* `probe`, `worker_check`: a tiny job, and what its workers say of themselves.
* `worker_pool`: Python workers for `environment: external`.
* `failures`, `reach`: which process of an engine is gone, or which option gives it what it lacks.
* `flink_cluster`: Flink on this machine; with `flink_state` (what is remembered and found of it),
  `flink_memory`, `flink_files`, `flink_config`, `flink_rest`, `java` and `processes`.
* `cli`: `python -m pipeline beam-options | flink | worker-pool`.
"""
