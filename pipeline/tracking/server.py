"""An MLflow server: its client with time limits, and a check before a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHECK_SECONDS = 10
"""Time limit of a request that shows whether the server answers."""

EXPORT_SECONDS = 60
"""Time limit of a request of the export, which may wait for the server's storage."""

_MAX_CAUSE = 300


@contextlib.contextmanager
def client_of(config: PipelineConfig, *, seconds: int) -> Iterator[MlflowClient]:
    """Provide the client of `tracking.mlflow`, whose requests end in time.

    MLflow reads its limits from the environment at each request, so that they are set there
    meanwhile. A limit that the user has set is used instead.

    Args:
        config: The configuration.
        seconds: Time limit of a request in seconds; a failed one is repeated once.

    Raises:
        ConfigError: The package mlflow is not installed.
    """
    assert config.tracking is not None
    settings = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(seconds),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",  # reports to MLflow's makers
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    }
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield _client(config.tracking.mlflow)
    finally:
        for name in added:
            os.environ.pop(name, None)


def check_server(config: PipelineConfig) -> None:
    """Check that the server of `tracking.mlflow`, if any, answers and will take a run.

    Raises:
        ConfigError: The package mlflow is not installed, the server does not answer, or the
            experiment is deleted.
    """
    if config.tracking is None:
        return
    field = f"tracking.mlflow={config.tracking.mlflow}"
    with client_of(config, seconds=CHECK_SECONDS) as client:
        try:
            experiment = client.get_experiment_by_name(config.name)
        except Exception as error:
            raise ConfigError(
                f"{field}: the MLflow server cannot be used ({cause_of(error)}). Start it, correct "
                "the URI or the login, or run without it: --set tracking=null"
            ) from None
    if experiment is not None and experiment.lifecycle_stage == "deleted":
        raise ConfigError(
            f"{field}: the experiment {config.name!r} is deleted there. Restore it with `mlflow "
            f"experiments restore --experiment-id {experiment.experiment_id}`, or give the "
            "pipeline another name."
        )


def cause_of(error: BaseException) -> str:
    """Return the reason of a failed request: the system's, or else MLflow's first line."""
    first, below = error, error
    while below := below.__cause__ or below.__context__:
        if isinstance(below, OSError) and below.errno and below.strerror:
            return below.strerror
        if isinstance(below, TimeoutError):
            return "no answer in time"
    text = str(first).strip() or type(first).__name__
    return text.splitlines()[0][:_MAX_CAUSE]


def _client(uri: str) -> MlflowClient:
    try:
        from mlflow import MlflowClient
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tracking.mlflow={uri}: the package {error.name} is not installed. Run `uv pip "
            "install 'tfx-largebatch[mlflow]'`, or run without it: --set tracking=null"
        ) from None
    return MlflowClient(tracking_uri=uri)
