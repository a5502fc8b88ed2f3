"""The engines that run Beam: one file each, and what they share.

* `in_memory`, `multi_processing`, `portable`, `flink`, `spark`, `dataflow`: fields in the YAML,
  Beam's options, checks before a run, explanations of failures; `table` lists them.
* `engine`, `job_server`: the base class, and that of engines behind a Beam job server.
* `options`: the pipeline options of an engine, checked by Beam's own parser, and explained.
* `probe`, `worker_check`: one small job with a time limit, and a check of its workers.
* `worker_pool`: Python workers for `environment: external`.
* `beam_errors`, `reach`: messages of failed code; who listens at an address.

Reading a configuration imports this room: Beam and gRPC are imported inside functions. May use
`flink` and `common`.
"""
