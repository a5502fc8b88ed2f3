"""The engines that run Beam: one file per engine, and the code that they share.

* `in_memory`, `multi_processing`, `portable`, `flink`, `spark`, `dataflow`: YAML fields, Beam's
  options, checks before a run, explanations of failures. `table` lists them.
* `engine`, `job_server`: the base class of all engines, and of those behind a Beam job server.
* `options`: the pipeline options of an engine, checked by Beam's parser, with explanations.
* `probe`, `worker_check`: one small job with a time limit, and a check of its workers.
* `worker_pool`: Python workers for `environment: external`.
* `beam_errors`, `reach`: messages of failed code; who listens at an address.

Reading a configuration imports this package, so Beam and gRPC are imported inside functions. This
package may import `flink` and `common`.
"""
