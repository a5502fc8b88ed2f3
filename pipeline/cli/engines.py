"""`python -m pipeline beam-options | flink | worker-pool`."""

from __future__ import annotations

import logging
import warnings
from types import SimpleNamespace

import rich_click as click

from pipeline.cli import options
from pipeline.cli.base import Decorator, command, group, option
from pipeline.common.errors import ConfigError
from pipeline.flink import flink_memory

ENGINES = ("in_memory", "multi_processing", "portable", "flink", "spark", "dataflow")
"""Names of `pipeline.engines.table.ENGINES`, which takes too long to import for `--help`."""

_folder_option = option(
    "--folder",
    "FOLDER",
    "folder of the cluster's configuration and logs",
    type=options.FOLDER,
    default="output/flink",
)


def _port_option(name: str, default: int, help: str) -> Decorator:
    return option(name, "PORT", help, type=click.IntRange(0, 65535), default=default)


@command("beam-options")
@option(
    "--engine",
    "NAME",
    f"{', '.join(ENGINES)}; default: the YAML's",
    shell_complete=lambda _, __, start: [name for name in ENGINES if name.startswith(start)],
)
@options.config_option("a pipeline's YAML, to print the options of its `beam:`")
@options.set_option("beam.parallelism=4")
def beam_options(given: SimpleNamespace) -> int:
    """Print an engine's Beam pipeline options, checked.

    Prints the Beam pipeline options of `beam:` with the purpose of each, after Beam's own parser
    and validator have accepted them. Runs offline.
    """
    from pipeline.config.config_file import load_config, load_engine

    chosen = None if given.config is None else load_config(given.config, given.set).beam
    if chosen is None or given.engine not in (None, chosen.name):
        chosen = load_engine(given.engine or "in_memory", given.set)
    logging.disable(logging.WARNING)  # Beam's remarks on what is not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Google's clients on Python's age
            from pipeline.engines.options import options_text

            print(options_text(chosen))
    finally:
        logging.disable(logging.NOTSET)
    return 0


@group("flink")
def flink() -> None:
    """Start, show and stop a Flink cluster on this machine.

    A Flink session cluster: a JobManager, two TaskManagers, Beam's Flink job server and the worker
    pool, each a process on 127.0.0.1. Needs Java. The first start also needs Maven and downloads
    380 MB into ~/.cache/tfx-largebatch (or the folder that TFX_LARGEBATCH_CACHE names).
    """


@flink.command("start")
@_folder_option
@_port_option("--rest-port", 8081, "Flink's REST endpoint and web page; 0: a free port")
@_port_option("--job-port", 8099, "Beam's job server; 0: a free port")
@_port_option("--pool-port", 50000, "the worker pool; 0: a free port")
@option(
    "--memory",
    "SIZE",
    "memory of all its processes except the Python workers: 8GiB, or a share of the free memory "
    f"(at most {flink_memory.MOST_BY_DEFAULT_MB >> 10} GiB by default)",
    default=flink_memory.DEFAULT,
)
def start(given: SimpleNamespace) -> int:
    """Start the cluster, unless it runs."""
    from pipeline.flink import flink_cluster

    ports = flink_cluster.Ports(given.rest_port, given.job_port, given.pool_port)
    print(flink_cluster.status(flink_cluster.start(given.folder, ports, memory=given.memory)))
    return 0


@flink.command("status")
@_folder_option
def status(given: SimpleNamespace) -> int:
    """Show its processes, slots and jobs."""
    from pipeline.flink import flink_cluster

    cluster = flink_cluster.Cluster.load(given.folder.resolve())
    if cluster is None:
        print(f"No Flink cluster of {given.folder} runs. `make flink` starts one.")
        return 1
    print(flink_cluster.status(cluster))
    return 0 if flink_cluster.is_healthy(cluster) else 1


@flink.command("stop")
@_folder_option
def stop(given: SimpleNamespace) -> int:
    """Stop its processes."""
    from pipeline.flink import flink_cluster

    cluster = flink_cluster.Cluster.load(given.folder.resolve())
    if cluster is None:
        print(f"No Flink cluster of {given.folder} runs.")
        return 0
    cluster.stop()
    print("Flink is stopped.")
    return 0


@command("worker-pool")
@option("--host", "ADDRESS", "address to listen on", default="127.0.0.1")
@_port_option("--port", 50000, "port to listen on")
def worker_pool(given: SimpleNamespace) -> int:
    """Start Python workers for `beam.environment: external`.

    Starts a Python worker for each request of an engine, until you interrupt it. Run it on each of
    the engine's machines, from the folder that holds your modules. Everyone who can reach the port
    can run code here: by default it listens on 127.0.0.1.
    """
    from pipeline.engines.worker_pool import serve

    try:
        serve(given.host, given.port)
    except OSError as error:
        raise ConfigError(f"worker-pool: {error}.") from None
    return 0
