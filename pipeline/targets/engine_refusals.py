"""Check that a pod or a machine of Vertex can reach an engine behind a Beam job server."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.config.cluster import TargetConfig
from pipeline.config.config import PipelineConfig
from pipeline.engines.job_server import JobServerEngine
from pipeline.engines.reach import names_own_machine

_EXAMPLE = "flink-job-server.flink.svc:8099"


def engine_refusals(there: PipelineConfig, profile: TargetConfig) -> Iterator[str]:
    """Yield the reasons why a node of a cluster cannot reach an engine.

    `worker_pool` may be localhost: the engine's machines connect to it, not the node, and a pool in
    the same pod as a TaskManager has that address.
    """
    engine = there.beam
    if not isinstance(engine, JobServerEngine):
        return
    field = f"{profile.section}.beam" if profile.beam is not None else "beam"
    fix = f"{profile.section}.beam"
    if engine.job_server and names_own_machine(_host(engine.job_server)):
        yield (
            f"{field}.job_endpoint={engine.job_server}: the node itself, where no job server runs; "
            f"give one that nodes reach as {fix}.job_endpoint, such as {_EXAMPLE}."
        )
    if engine.job_server and engine.environment == "loopback":
        yield (
            f"{field}.environment=loopback: the Python code runs in the node, which the machines "
            f"of {engine.name} do not reach; use {fix}.environment=external with a worker pool "
            f"beside each of them ({profile.image} with the command `python -m pipeline "
            "worker-pool`), or docker with worker_image."
        )
    if engine.environment == "external":
        pool = engine.worker_pool
        if names_own_machine(_host(pool)) and not engine.job_server:
            yield (
                f"{field}.worker_pool={pool}: the node itself, where no worker pool runs; use "
                f"{fix}.environment=loopback with the job server in the node, or name a pool that "
                "nodes reach."
            )
        elif pool.startswith("0.0.0.0:"):
            yield (
                f"{field}.worker_pool={pool}: an address to listen on, which nobody connects to; "
                f"use {fix}.worker_pool=localhost:{pool.rpartition(':')[2]} for a pool beside each "
                "of the engine's machines."
            )
    if engine.environment == "docker" and not engine.job_server:
        yield (
            f"{field}.environment=docker: the job server in the node starts containers, and a node "
            f"has no Docker; use {fix}.environment=loopback."
        )


def engine_for_large_data(profile: TargetConfig) -> str:
    """Return the setting that moves Beam's shuffle out of the node's memory; "" for none."""
    section = profile.section
    if section.endswith("vertex"):
        missing = [each for each in ("project", "region") if not getattr(profile, each, None)]
        names = " and ".join(f"{section}.{each}" for each in missing)
        return f"{section}.beam={{engine: dataflow}}{f' with {names}' if missing else ''}"
    if profile.pipeline_root.startswith("s3://"):
        return ""  # TensorFlow in Flink's workers does not support s3://
    return (
        f"{section}.beam={{engine: flink, job_endpoint: '{_EXAMPLE}', environment: external}} with "
        "the address of your job server"
    )


def _host(address: str) -> str:
    return address.rpartition(":")[0]
