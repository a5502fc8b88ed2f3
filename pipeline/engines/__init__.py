"""Where Beam runs: the options of each engine, checks before a run, and the cause of a failure.

* `options`: the pipeline options of an engine, checked by Beam's own parser, and explained.
* `preflight`: endpoints, slots and workers, asked before a job is submitted.
* `pool_check`: whether a worker pool starts workers that can run.
* `probe`, `worker_check`: a tiny job, and what its workers say of themselves.
* `worker_pool`: Python workers for `environment: external`.
* `failures`, `reach`: which process of an engine is gone, or which option gives it what it lacks.

May use `flink`, `graph` and what is below them.
"""
