"""Check an engine's workers with one small job: do they match this process and see its folders?"""

from __future__ import annotations

from pathlib import Path

from pipeline.common.errors import ConfigError
from pipeline.engines.engine import Folders
from pipeline.engines.job_server import JobServerEngine
from pipeline.engines.probe import MISSING_PATH, WorkerInfo, job_name, run_probe


def check_workers(engine: JobServerEngine, folders: Folders) -> None:
    """Run the probe job and compare its workers with this process.

    Raises:
        ConfigError: The job timed out or failed, or a worker has other packages than this process
            or does not see a folder.
    """
    root = Path(folders.root)
    root.mkdir(parents=True, exist_ok=True)
    name = f"beam.engine={engine.name}, environment={engine.environment}"
    job = job_name(engine.probe_seconds)
    try:
        found = run_probe(
            job,
            engine.pipeline_args(),
            root,
            [path for _, path in folders.local],
            workers=engine.tasks,
            seconds=engine.probe_seconds,
        )
    except TimeoutError as error:
        raise ConfigError(
            f"{name}: a first small job did not return ({error}; beam.probe_seconds). "
            f"{engine.log_hint()} {engine.cancel(job)}"
        ) from None
    except KeyboardInterrupt:
        engine.cancel(job)
        raise
    except ConfigError:
        raise
    except Exception as error:  # any type: Beam decides how it reports the engine's answer
        raise ConfigError(f"{name}: {_explain_failure(error, engine, folders)}") from None
    if not found:
        raise ConfigError(
            f"output.folder={folders.output}: workers write there, but not into the folder that "
            "this process sees. Use one that is shared with the engine's machines."
        )
    for worker in found:
        compare(worker, folders, name)


def compare(worker: WorkerInfo, folders: Folders, name: str) -> None:
    """Raise if a worker has other packages than this process or does not see a folder.

    Args:
        worker: The description of the worker.
        folders: The folders that the run reads and writes.
        name: The YAML fields that decide where the worker runs, for the message.

    Raises:
        ConfigError: Names what differs.
    """
    here = WorkerInfo.current()
    differences = []
    if worker.python != here.python:
        differences.append(f"Python {worker.python}, here it is {here.python}")
    differences += [
        f"{package} {worker.packages.get(package)}, here it is {version}"
        for package, version in here.packages.items()
        if worker.packages.get(package) != version
    ]
    if worker.project != here.project:
        differences.append("other sources of this project than this process")
    if differences:
        raise ConfigError(
            f"{name}: a worker on {worker.host} has {'; '.join(differences)}. Workers need the "
            "packages of this environment: start the worker pool from it "
            "(`python -m pipeline worker-pool`), or build the image from its lock file."
        )
    for field, path in folders.local:
        if path in worker.unseen:
            raise ConfigError(
                f"{field}={path}: a worker on {worker.host} does not see it. Put it where the "
                "engine's machines find it under the same name."
            )


def _explain_failure(error: Exception, engine: JobServerEngine, folders: Folders) -> str:
    text = f"{engine.first_error(error)}\n{error}"
    if found := engine.diagnose(error):
        return f"{found.words} Fix: `{found.fix}`." if found.fix else found.words
    if MISSING_PATH in text:
        return (
            f"workers do not see output.folder={folders.output}. Use a folder that is shared "
            "with the engine's machines under the same name."
        )
    if "No module named" in text:
        module = text.partition("No module named ")[2].split("'")[1]
        return (
            f"workers lack the Python module {module!r}. Start the worker pool from this "
            "environment and this folder (`python -m pipeline worker-pool`)."
        )
    return f"a first small job failed: {engine.describe(error)}"
