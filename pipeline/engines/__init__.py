"""Where Beam runs: a file for each engine, with all that is known of it, and what they share.

* `in_memory`, `multi_processing`, `portable`, `flink`, `spark`, `dataflow`: fields in the YAML,
  Beam's options, what is looked at before a run, and what a failure means; `table` lists them.
* `engine`, `job_server`: what each has, and those behind a Beam job server.
* `options`: the pipeline options of an engine, checked by Beam's own parser, and explained.
* `pool_check`: whether a worker pool starts workers that can run.
* `probe`, `worker_check`: a tiny job, and what its workers say of themselves.
* `worker_pool`: Python workers for `environment: external`.
* `beam_errors`, `reach`: what failing code said itself; who listens at an address.

Reading a configuration imports this room: Beam and gRPC are imported inside functions. May use
`flink` and `common`.
"""
