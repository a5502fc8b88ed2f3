"""Where runs on this machine are exported to: the YAML's `tracking:` section."""

from __future__ import annotations

from urllib.parse import urlsplit

import pydantic
from pydantic import Field

from pipeline.config.section import Section


class TrackingConfig(Section):
    """Export each run on this machine to a tracking server."""

    mlflow: str = Field(
        examples=["http://host:5000"],
        description=(
            "URI of an MLflow server: `http://host:5000`. Each run becomes a run of the experiment "
            "with the pipeline's name. Needs `uv pip install 'tfx-largebatch[mlflow]'`. A login "
            "comes from MLflow's environment variables: MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."
        ),
    )

    # Of the section, because an error of the field would show its value.
    @pydantic.model_validator(mode="after")
    def _is_a_server(self) -> TrackingConfig:
        try:
            parts = urlsplit(self.mlflow)
            host = parts.hostname
            parts.port  # noqa: B018 - raises if it is no number
        except ValueError as error:
            raise ValueError(f"mlflow: not a URI ({error}); use http://host:5000") from None
        if "@" in parts.netloc:
            shown = f"{parts.scheme}://...@{parts.netloc.rpartition('@')[2]}"
            raise ValueError(
                f"mlflow={shown}: has a login, which everyone sees who sees the YAML. Remove it, "
                "and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment"
            )
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError(
                f"mlflow={self.mlflow}: not the URI of a server; start one with `mlflow server "
                "--backend-store-uri sqlite:///mlflow.db` and use http://127.0.0.1:5000"
            )
        return self
