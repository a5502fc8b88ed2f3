"""`python -m pipeline beam-options | flink | worker-pool`."""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path
from typing import Any

from pipeline.common.errors import ConfigError
from pipeline.flink import flink_memory

_FLINK_FOLDER = Path("output/flink")


def add_commands(commands: Any) -> None:
    """Adds this package's commands to the command line.

    Args:
        commands: what `ArgumentParser.add_subparsers` returned.
    """
    _add_beam_options(commands)
    _add_flink(commands)
    _add_worker_pool(commands)


def _add_beam_options(commands: Any) -> None:
    parser = commands.add_parser(
        "beam-options",
        help="print an engine's Beam pipeline options, checked",
        description=(
            "Prints the Beam pipeline options that `beam:` stands for, each with what it is for, "
            "after Beam's own parser and validator have accepted them. Contacts nobody."
        ),
    )
    engine: Any = parser.add_argument("--engine", help="one of %(names)s; default: the YAML's")
    engine.names = _EngineNames()
    parser.add_argument("--config", type=Path, metavar="YAML", help="whose `beam:` is taken")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="beam.FIELD=VALUE",
        help="set a field, e.g. beam.parallelism=4; may be repeated",
    )
    parser.set_defaults(command=_beam_options)


class _EngineNames:
    """Their names, which only this command's `--help` reads from the models."""

    def __str__(self) -> str:
        from pipeline.engines.table import ENGINES

        return ", ".join(ENGINES)


def _add_flink(commands: Any) -> None:
    parser = commands.add_parser(
        "flink",
        help="a Flink cluster on this machine: start, status, stop",
        description=(
            "A Flink session cluster on this machine: a JobManager, two TaskManagers, Beam's Flink "
            "job server and the worker pool, each a process of its own on 127.0.0.1. Needs Java; "
            "the first start also needs Maven and fetches 380 MB into ~/.cache/tfx-largebatch "
            "(TFX_LARGEBATCH_CACHE names another folder)."
        ),
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    start = actions.add_parser("start", help="start it, unless it runs")
    status = actions.add_parser("status", help="its processes, slots and jobs")
    stop = actions.add_parser("stop", help="end its processes")
    for action in (start, status, stop):
        action.add_argument(
            "--folder",
            type=Path,
            default=_FLINK_FOLDER,
            help="its configuration and logs (default: %(default)s)",
        )
    for option, default, what in (
        ("--rest-port", 8081, "Flink's REST endpoint and web page"),
        ("--job-port", 8099, "Beam's job server"),
        ("--pool-port", 50000, "the worker pool"),
    ):
        start.add_argument(
            option, type=int, default=default, help=f"{what} (default: %(default)s; 0: a free one)"
        )
    start.add_argument(
        "--memory",
        default=flink_memory.DEFAULT,
        metavar="SIZE",
        help=(
            "for all of its processes together, without the Python workers: 8GiB, or a share of "
            f"what is free (default: {flink_memory.DEFAULT}%, at most "
            f"{flink_memory.MOST_BY_DEFAULT_MB >> 10} GiB)"
        ),
    )
    start.set_defaults(command=_flink_start)
    status.set_defaults(command=_flink_status)
    stop.set_defaults(command=_flink_stop)


def _add_worker_pool(commands: Any) -> None:
    parser = commands.add_parser(
        "worker-pool",
        help="Python workers for beam.environment: external",
        description=(
            "Starts a Python worker for each that an engine asks for, until it is interrupted. Run "
            "it beside each of the engine's machines, from the folder that holds your modules. "
            "Whoever can reach the port can run code here: it listens on 127.0.0.1 unless told "
            "otherwise."
        ),
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    parser.add_argument("--port", type=int, default=50000, help="port (default: %(default)s)")
    parser.set_defaults(command=_worker_pool)


def _beam_options(arguments: argparse.Namespace) -> int:
    from pipeline.config.config_file import load_config, load_engine

    engine = arguments.engine
    chosen = None
    if arguments.config:
        chosen = load_config(arguments.config, arguments.set).beam
    if chosen is None or engine not in (None, chosen.name):
        chosen = load_engine(engine or "in_memory", arguments.set)
    logging.disable(logging.WARNING)  # Beam's remarks on what is not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Google's clients on Python's age
            from pipeline.engines.options import options_text

            print(options_text(chosen))
    finally:
        logging.disable(logging.NOTSET)
    return 0


def _flink_start(arguments: argparse.Namespace) -> int:
    from pipeline.flink import flink_cluster

    ports = flink_cluster.Ports(arguments.rest_port, arguments.job_port, arguments.pool_port)
    cluster = flink_cluster.start(arguments.folder, ports, memory=arguments.memory)
    print(flink_cluster.status(cluster))
    return 0


def _flink_status(arguments: argparse.Namespace) -> int:
    from pipeline.flink import flink_cluster

    cluster = flink_cluster.Cluster.load(arguments.folder.resolve())
    if cluster is None:
        print(f"No Flink cluster of {arguments.folder} runs. `make flink` starts one.")
        return 1
    print(flink_cluster.status(cluster))
    return 0 if flink_cluster.is_healthy(cluster) else 1


def _flink_stop(arguments: argparse.Namespace) -> int:
    from pipeline.flink import flink_cluster

    cluster = flink_cluster.Cluster.load(arguments.folder.resolve())
    if cluster is None:
        print(f"No Flink cluster of {arguments.folder} runs.")
        return 0
    cluster.stop()
    print("Flink is stopped.")
    return 0


def _worker_pool(arguments: argparse.Namespace) -> int:
    from pipeline.engines.worker_pool import serve

    try:
        serve(arguments.host, arguments.port)
    except OSError as error:
        raise ConfigError(f"worker-pool: {error}.") from None
    return 0
