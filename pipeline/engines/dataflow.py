"""`beam: {engine: dataflow, project: p, region: r, temp_location: "gs://b/tmp", ...}`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pydantic
from pydantic import Field

from pipeline.common.errors import ConfigError
from pipeline.engines.engine import Engine, Folders, Option

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator


class Dataflow(Engine):
    """Google Cloud Dataflow."""

    engine: Literal["dataflow"] = "dataflow"
    project: str = Field(description="Google Cloud project that runs and pays for the jobs.")
    region: str = Field(description="Google Cloud region, for example `europe-west1`.")
    temp_location: str = Field(description="`gs://bucket/folder` for temporary files.")
    sdk_container_image: str | None = Field(
        default=None, description="Image of the workers: Beam's SDK harness, TFX and this project."
    )
    max_workers: int | None = Field(
        default=None, ge=1, description="Most machines at a time; Dataflow's default otherwise."
    )
    machine_type: str | None = Field(
        default=None,
        description="Machine of each worker, `n1-standard-4`; Dataflow's default otherwise.",
    )
    disk_gb: int | None = Field(
        default=None, ge=1, description="Disk of each worker in GB; Dataflow's default otherwise."
    )
    service_account: str | None = Field(
        default=None, description="Account that workers have; null: the project's default."
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _require_location(cls, value: object) -> object:
        if isinstance(value, dict):
            needed = ("project", "region", "temp_location")
            missing = [name for name in needed if not value.get(name)]
            if missing:
                raise ValueError(
                    f"engine: dataflow needs {', '.join(missing)}; for example beam: "
                    "{engine: dataflow, project: my-project, region: europe-west1, "
                    "temp_location: gs://my-bucket/tmp, "
                    "sdk_container_image: europe-docker.pkg.dev/my-project/images/tfx-largebatch}"
                )
        return value

    @pydantic.model_validator(mode="after")
    def _require_packages_for_workers(self) -> Dataflow:
        packages = ("--setup_file", "--extra_package", "--requirements_file")
        if self.sdk_container_image is None and not any(
            argument.startswith(packages) for argument in self.extra_args
        ):
            raise ValueError(
                "engine: dataflow starts workers without TFX and this project; name an image that "
                "has both (sdk_container_image), or add --setup_file=... to extra_args"
            )
        return self

    def options(self) -> tuple[Option, ...]:
        """Return the options for the project, the location of the workers, and their image."""
        options = [
            Option("runner", "DataflowRunner", "submits to Google Cloud Dataflow"),
            Option("project", self.project, "beam.project: who runs and pays for the jobs"),
            Option("region", self.region, "beam.region: where the workers are"),
            Option("temp_location", self.temp_location, "beam.temp_location: temporary files"),
        ]
        if self.sdk_container_image:
            why = "beam.sdk_container_image: workers with TFX and this project"
            options.append(Option("sdk_container_image", self.sdk_container_image, why))
        for name, value, field in (
            ("max_num_workers", self.max_workers, "max_workers"),
            ("machine_type", self.machine_type, "machine_type"),
            ("disk_size_gb", self.disk_gb, "disk_gb"),
            ("service_account_email", self.service_account, "service_account"),
        ):
            if value is not None:
                options.append(Option(name, str(value), f"beam.{field}"))
        return tuple(options)

    def objections(
        self, validator: PipelineOptionsValidator, options: PipelineOptions
    ) -> list[str]:
        """Return Beam's objections to project, `gs://` paths, region and number of workers."""
        from apache_beam.options.pipeline_options import GoogleCloudOptions, WorkerOptions

        google, workers = options.view_as(GoogleCloudOptions), options.view_as(WorkerOptions)
        places = ["temp_location", *(["staging_location"] if google.staging_location else [])]
        return [
            *validator.validate_cloud_options(google),
            *(text for place in places for text in validator.validate_gcs_path(google, place)),
            *validator.validate_num_workers(workers),
            *validator.validate_worker_region_zone(workers),
        ]

    def check(self, folders: Folders) -> None:
        """Raise if the run has folders on this machine.

        Raises:
            ConfigError: A folder is local. Workers in Google Cloud cannot see it.
        """
        if folders.local:
            named = " and ".join(f"{name}={path}" for name, path in folders.local)
            raise ConfigError(
                f"beam.engine=dataflow: workers in Google Cloud do not see {named}. A run on this "
                "machine has its folders here: use another engine for it, or deploy the pipeline "
                "(`create_pipeline` passes these options to every TFX runner) with gs:// paths."
            )
