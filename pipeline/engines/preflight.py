"""What must be there for an engine, looked at before a job is submitted: no mistake ends in a hang.

Every question has a time limit: is the job server there, has Flink free slots, does the worker pool
start workers, and does a first tiny job come back from workers that are like this process and see
its folders.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import time

from pipeline.config.config import ConfigError, PipelineConfig, is_remote
from pipeline.config.presets import Dataflow, Engine, Flink, JobServerEngine
from pipeline.engines import failures
from pipeline.engines.options import check_options
from pipeline.engines.reach import unreachable
from pipeline.engines.worker_check import cancel_left_over, check_workers
from pipeline.flink import flink_rest
from pipeline.flink.flink_state import find_cluster

CONNECT_SECONDS = 5.0
CANCEL_SECONDS = 15.0
"""Until a cancelled job has given its slots back."""
POOL_SECONDS = 30.0
"""A worker imports Beam before it connects: 3 seconds, on a busy machine several times that."""


def check_engine(config: PipelineConfig) -> None:
    """Looks at everything that `config.beam` needs.

    Raises:
        ConfigError: names what is missing and how to get it. Nothing has run but the tiny job.
    """
    engine = config.beam
    check_options(engine)
    _check_pip(engine)
    if isinstance(engine, Dataflow):
        _refuse_local_folders(config)
    if not isinstance(engine, JobServerEngine):
        return
    if isinstance(engine, Flink):
        _check_local_cluster(engine)
    if engine.job_endpoint != "embed":
        _check_job_server(engine)
    if isinstance(engine, Flink) and engine.rest:
        _cancel_left_over(engine, engine.rest)
        _check_flink(engine, engine.rest)
    if engine.environment == "external":
        _check_pool(engine)
    if engine.job_endpoint != "embed" or engine.environment != "loopback":
        check_workers(config, engine)


def _check_pip(engine: Engine) -> None:
    """Beam's stager downloads what a requirements file names with the environment's own pip."""
    wants = next((a for a in engine.extra_args if a.startswith("--requirements_file")), None)
    if wants and importlib.util.find_spec("pip") is None:
        raise ConfigError(
            f"beam.extra_args: {wants} needs pip in this environment, and there is none. "
            "Run `python -m ensurepip`, or name an image that has the packages."
        )


def _refuse_local_folders(config: PipelineConfig) -> None:
    local = {
        name: path
        for name, path in (("data.path", config.data.path), ("output.folder", config.output.folder))
        if not is_remote(path)
    }
    if local:
        named = " and ".join(f"{name}={path}" for name, path in local.items())
        raise ConfigError(
            f"beam.engine=dataflow: workers in Google Cloud do not see {named}. A run on this "
            "machine keeps its folders here: use another engine for it, or deploy the pipeline "
            "(`create_pipeline` hands these options to every TFX runner) with gs:// paths."
        )


def _check_local_cluster(engine: Flink) -> None:
    """One of this machine that is half-dead: with or without enough slots left, it is told."""
    cluster = find_cluster(engine.job_endpoint)
    dead = [each.name for each in cluster.dead()] if cluster else []
    if cluster and dead and not (dead == ["worker-pool"] and engine.environment != "external"):
        raise ConfigError(
            f"beam.engine=flink: {failures.ended(cluster)} `{cluster.start_command()}` starts it "
            "anew."
        )


def _check_job_server(engine: JobServerEngine) -> None:
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    where = f"beam.job_endpoint={engine.job_endpoint}"
    hint = "`make flink` starts one" if isinstance(engine, Flink) else "Start it, or name yours"
    if reason := unreachable(engine.job_endpoint, CONNECT_SECONDS):
        raise ConfigError(f"{where}: no job server there ({reason}). {hint}.")
    with grpc.insecure_channel(engine.job_endpoint) as channel:
        server = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        try:
            server.DescribePipelineOptions(request, timeout=CONNECT_SECONDS)
        except grpc.RpcError as error:
            raise ConfigError(
                f"{where}: what answers there is no Beam job server ({error.code().name}). {hint}."
            ) from None


def _cancel_left_over(engine: Flink, rest: str) -> None:
    """Frees the slots that tiny jobs of killed runs hold, and waits until they are free."""
    with contextlib.suppress(flink_rest.FlinkError):  # `_check_flink` tells
        deadline = time.monotonic() + CANCEL_SECONDS
        if cancel_left_over(rest):
            while flink_rest.overview(rest).free_slots < engine.parallelism:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.5)


def _check_flink(engine: Flink, rest: str) -> None:
    try:
        seen = flink_rest.overview(rest)
        managers = flink_rest.task_managers(rest)
    except flink_rest.FlinkError as error:
        raise ConfigError(
            f"beam.rest={rest}: {error}. `make flink` starts Flink on this machine; "
            "rest: null does not ask."
        ) from None
    if seen.slots < engine.parallelism:
        raise ConfigError(
            f"beam.parallelism={engine.parallelism} exceeds the {seen.slots} slots of Flink at "
            f"{rest} ({seen.task_managers} TaskManagers). "
            + (
                f"Use {seen.slots} or less."
                if seen.slots
                else "Start a TaskManager (`make flink-status` shows what runs)."
            )
        )
    if seen.free_slots < engine.parallelism:
        raise ConfigError(
            f"beam.parallelism={engine.parallelism}: only {seen.free_slots} of {seen.slots} slots "
            f"of Flink at {rest} are free, {seen.running} jobs run. Wait for them, cancel one at "
            f"http://{rest}, or use a lower parallelism."
        )
    far = [manager.host for manager in managers if not flink_rest.is_this_machine(manager.host)]
    if engine.environment == "loopback" and far:
        raise ConfigError(
            f"beam.environment=loopback: the TaskManager at {far[0]} cannot reach workers in this "
            "process. Use environment: external with a worker pool beside each TaskManager, or "
            "environment: docker."
        )


def _check_pool(engine: JobServerEngine) -> None:
    """Lets a worker pool of this machine start one worker, which has to connect to us."""
    host, _, _ = engine.worker_pool.rpartition(":")
    if not flink_rest.is_this_machine(host) or not _is_loopback(host):
        return  # the engine's machines reach it, this one need not
    where = f"beam.worker_pool={engine.worker_pool}"
    if reason := unreachable(engine.worker_pool, CONNECT_SECONDS):
        raise ConfigError(
            f"{where}: no worker pool there ({reason}). Start one with "
            "`python -m pipeline worker-pool`; `make flink` starts one, too."
        )
    from pipeline.engines.pool_check import start_worker

    problem = start_worker(engine.worker_pool, POOL_SECONDS)
    if problem:
        raise ConfigError(f"{where}: {problem}")


def _is_loopback(host: str) -> bool:
    try:
        return all(
            str(info[4][0]).startswith(("127.", "::1")) for info in socket.getaddrinfo(host, None)
        )
    except OSError:
        return False
