"""What must be there for Beam's engine, looked at before a job is submitted: no hang for a mistake.

Every question has a time limit: are the options Beam's, is the engine there, and does a first tiny
job come back from workers that are like this process and see its folders.
"""

from __future__ import annotations

import importlib.util

from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig, is_remote
from pipeline.data.data_sources import files
from pipeline.engines.engine import Engine, Folders
from pipeline.engines.job_server import JobServerEngine
from pipeline.engines.options import check_options
from pipeline.engines.worker_check import check_workers


def check_engine(config: PipelineConfig) -> None:
    """Looks at everything that `config.beam` needs.

    Raises:
        ConfigError: names what is missing and how to get it. Only the probe job has run.
    """
    engine, folders = config.beam, folders_of(config)
    check_options(engine)
    _check_pip(engine)
    engine.check(folders)
    if isinstance(engine, JobServerEngine) and engine.leaves_this_process:
        check_workers(engine, folders)


def folders_of(config: PipelineConfig) -> Folders:
    """What workers read and write."""
    local = []
    for field in ("path", "eval_path"):
        value = getattr(config.data, field)
        if value and not is_remote(value):
            found = files(
                value, f"data.{field}", source=config.data.source, spans=config.data.spans
            )
            local.append((f"data.{field}", str(found[0])))
    if not is_remote(config.output.folder):
        local.append(("output.folder", config.output.folder))
    return Folders(config.pipeline_root, config.output.folder, tuple(local))


def _check_pip(engine: Engine) -> None:
    """Beam's stager downloads what a requirements file names with the environment's own pip."""
    wants = next((a for a in engine.extra_args if a.startswith("--requirements_file")), None)
    if wants and importlib.util.find_spec("pip") is None:
        raise ConfigError(
            f"beam.extra_args: {wants} needs pip in this environment, and there is none. "
            "Run `python -m ensurepip`, or name an image that has the packages."
        )
