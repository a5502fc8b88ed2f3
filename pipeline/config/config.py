"""One YAML file as frozen pydantic models, with units, and errors that name the field.

The models are the reference of the YAML: `python -m pipeline schema` prints them as JSON Schema.
Relative paths are resolved against the folder of the YAML, so that a pipeline runs the same from
any working directory.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import pydantic
from pydantic import AfterValidator, Field

from components import CsvOptions, NormalizationLimits
from components.arrow_example_gen.spans import check_pattern, has_placeholders
from components.input_gradients import MOST_ROWS, MOST_STEPS
from pipeline.common.sources import Source
from pipeline.config.cluster import Cluster
from pipeline.config.evaluation import EvaluationConfig
from pipeline.config.nodes import Nodes
from pipeline.config.origin import Origin
from pipeline.config.section import Section
from pipeline.engines.engine import BeamConfig
from shared_core.run_warning import RunWarning
from trainer_module import TrainerConfig, TunerConfig
from transform import FeatureSpec, Label

PACKAGE_SCHEME = "package://"


_SplitBy = Literal["content", "row", "stratified", "time", "group"]


class SplitConfig(Section):
    """How rows are assigned to the train, eval and test splits."""

    by: _SplitBy = Field(
        default="content",
        description=(
            "`content`: by a hash of the row, so equal rows are in the same split. "
            "`row`: by a hash of the row and its position in the file, so equal rows may be in "
            "different splits. "
            "`stratified`: like `row`, with the same share of each class in every split. "
            "`time`: the earliest rows are for training, the latest for evaluation. "
            "`group`: rows with the same value in `column` are in the same split; use it to "
            "evaluate on customers or patients that training has not seen."
        ),
    )
    column: str | None = Field(
        default=None,
        description=(
            "With `by: time`: the column with the time (numbers, or ISO 8601 texts such as "
            "2024-05-31T12:00:00+02:00). With `by: group`: the column with the group (integers or "
            "texts). With `by: stratified`: the column with the classes; default: the label."
        ),
    )

    @pydantic.model_validator(mode="after")
    def _named(self) -> SplitConfig:
        if self.by in ("time", "group") and self.column is None:
            raise ValueError(f"by: {self.by} needs a column; set column to its name")
        if self.by in ("content", "row") and self.column is not None:
            raise ValueError(
                f"column={self.column} has no effect with by: {self.by}; use by: time, group or "
                "stratified, or remove column"
            )
        return self


class DataConfig(Section):
    """The input files, and how their rows are split."""

    source: Source = Field(
        default="csv",
        description=(
            "File format: CSV with a header line, TFRecord of tf.Example, Parquet, Arrow (IPC "
            "files, Feather), or `images`: a folder with a folder per class, whose files are rows "
            "with the columns `image` (bytes), `label` (name of the class's folder) and `path`."
        ),
    )
    path: str = Field(
        examples=["data/rows.csv"],
        description=(
            "A file, or a glob of files in one folder (`data/part-*.parquet`). CSV and TFRecord "
            "files may be compressed: gzip, bzip2, xz, zstd or lz4. "
            "Parquet and Arrow: also a folder, or a glob with folders "
            "(`sales/year=*/*.parquet`); folders named `key=value` become columns. "
            "`package://tfx/some/file.csv` is a file inside an installed Python package. "
            "`{SPAN}`, or `{YYYY}`, `{MM}` and `{DD}`, stands for the latest number or date for "
            "which files exist, and `{VERSION}` for its latest version: "
            "`data/{YYYY}-{MM}-{DD}/rows-*.csv`. "
            "With `source: images`: the folder of the classes. If it has the folders `train` and "
            "`val`, `validation`, `eval` or `test`, these are `path` and `eval_path`."
        ),
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        examples=[{"image": "photo_path"}],
        description=(
            "Name of a column to add, with the bytes of image files -> the column with their "
            "paths, relative to the file of the table."
        ),
    )
    on_damage: Literal["fail", "skip"] = Field(
        default="fail",
        description=(
            "An image that is missing or cannot be read: `fail` is an error with its path, `skip` "
            "leaves its row out, with a warning."
        ),
    )
    spans: int = Field(
        default=1,
        ge=1,
        description=(
            "With `{SPAN}` or a date in `path`: number of spans or days to read, up to the latest "
            "one. Those without files are skipped."
        ),
    )
    csv: CsvOptions = Field(
        default_factory=CsvOptions,
        description="The CSV dialect. Options that are not set are detected automatically.",
    )
    eval_path: str | None = Field(
        default=None,
        description=(
            "A separate file or glob for the eval split. "
            "Default: `eval_percent` of the rows of `path` are held out, as `split` says."
        ),
    )
    eval_percent: int = Field(
        default=33,
        ge=1,
        le=99,
        description=(
            "Share of the rows held out for evaluation, in percent. For `content`, `row` and "
            "`group` the split is hash-based, so the share is approximate."
        ),
    )
    test_percent: int = Field(
        default=0,
        ge=0,
        le=98,
        description=(
            "Share of the rows for a third split, `test`, in percent. If above 0, the Evaluator "
            "evaluates the model on it; training, early stopping and tuning do not use it."
        ),
    )
    split: SplitConfig = Field(
        default_factory=SplitConfig, description="How rows are assigned to splits."
    )
    drop_rows_without_label: bool = Field(
        default=False,
        description="Drop rows without a label. Default: a row without a label is an error.",
    )

    @pydantic.model_validator(mode="after")
    def _can_be_split(self) -> DataConfig:
        if self.eval_percent + self.test_percent > 99:
            raise ValueError(
                f"eval_percent={self.eval_percent} and test_percent={self.test_percent} leave no "
                "rows to train on; use a sum of 99 or less"
            )
        if self.eval_path and (self.test_percent or self.split != SplitConfig()):
            raise ValueError(
                "eval_path names the rows for evaluation, so no rows are split; remove "
                "test_percent and split, or eval_path"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _placeholders_fit(self) -> DataConfig:
        for path in filter(None, (self.path, self.eval_path)):
            check_pattern(path)
        if self.eval_path and has_placeholders(self.path) != has_placeholders(self.eval_path):
            raise ValueError(
                f"path={self.path} and eval_path={self.eval_path}: only one of them has {{SPAN}} "
                "or a date; use it in both"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _files_of_a_table(self) -> DataConfig:
        if self.files and self.source == "images":
            raise ValueError(
                "files names columns with paths of images, and source: images has the files "
                "themselves; remove files"
            )
        return self

    @property
    def shares(self) -> dict[str, int]:
        """Split -> its share of the rows of `path` in percent; `eval_path` is not included."""
        if self.eval_path:
            return {"train": 100}
        held_out = {"eval": self.eval_percent, "test": self.test_percent}
        shares = {"train": 100 - sum(held_out.values()), **held_out}
        return {name: share for name, share in shares.items() if share}

    @property
    def evaluation_split(self) -> str:
        """The split that the model is evaluated on."""
        return "test" if self.test_percent else "eval"


class SchemaConfig(Section):
    """Where the schema of the raw data comes from."""

    path: str | None = Field(
        default=None,
        description="A reviewed `schema.pbtxt`. Default: the schema is inferred from the data.",
    )


class NormalizationConfig(NormalizationLimits):
    """Limits that the transformed features must meet before the model is trained."""

    on_failure: Literal["fail", "warn"] = Field(
        default="fail",
        description="`fail`: a violated limit stops the pipeline. `warn`: it is logged.",
    )


class ServingConfig(Section):
    """Where blessed models are pushed to."""

    push_folder: str | None = Field(
        default=None,
        description=(
            "Folder with a numbered subfolder for each pushed model, as TF Serving reads it. "
            "Default: `<output.folder>/serving_model`."
        ),
    )


class MetadataConfig(Section):
    """ML Metadata: the record of runs and their artifacts, and the cache."""

    path: str | None = Field(
        default=None, description="SQLite file. Default: `<output.folder>/metadata.sqlite`."
    )
    cache: bool = Field(
        default=True,
        description=(
            "Reuse the outputs of an earlier run if a node's inputs, settings and code have not "
            "changed. Set it to false to run every node."
        ),
    )


class OutputConfig(Section):
    """Where the pipeline writes its files."""

    folder: str = Field(description="Folder for artifacts, logs, metadata and pushed models.")


class ExplainConfig(Section):
    """Attribute the model's predictions for sampled rows to columns, by integrated gradients."""

    rows: int = Field(
        default=2000,
        ge=1,
        le=MOST_ROWS,
        description="Number of rows of the evaluated split to explain: those with the smallest "
        "hashes, so the same ones in each run.",
    )
    steps: int = Field(
        default=50,
        ge=1,
        le=MOST_STEPS,
        description="Points between the baseline and a row at which the gradient is computed. More "
        "points are more exact and take longer.",
    )


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


_NAME = r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"


def _checked_name(name: str) -> str:
    if re.fullmatch(_NAME, name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    near = re.sub(r"[^a-z0-9]+", "-", plain).lstrip("-0123456789")[:63].rstrip("-")
    raise ValueError(
        "use at most 63 lower-case letters, digits and hyphens, with a letter first and no hyphen "
        f"last, for example {near or 'my-pipeline'!r}"
    )


_PipelineName = Annotated[
    str,
    AfterValidator(_checked_name),
    Field(
        examples=["my-pipeline"],
        json_schema_extra={"pattern": _NAME},
        description=(
            "Name of the pipeline: at most 63 lower-case letters, digits and hyphens "
            "(the rule of Kubernetes labels)."
        ),
    ),
]


class PipelineConfig(Section):
    """A pipeline, from input files to a pushed model."""

    name: _PipelineName
    data: DataConfig
    data_schema: SchemaConfig = Field(default_factory=SchemaConfig, alias="schema")
    features: FeatureSpec = Field(
        examples=[{"groups": [{"name": "numbers", "columns": ["age"], "scale": "z_score"}]}]
    )
    normalization: NormalizationConfig = Field(default_factory=NormalizationConfig)
    tuning: TunerConfig | None = Field(
        default=None,
        description="A search for better training settings before the training. Default: none.",
    )
    training: TrainerConfig = Field(examples=[{"epochs": 10}])
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    explain: ExplainConfig | None = Field(
        default=None,
        description=(
            "Attribute the model's predictions for sampled rows to columns, by integrated "
            "gradients. `{}`: with the defaults. Default: no attributions."
        ),
    )
    serving: ServingConfig = Field(default_factory=ServingConfig)
    nodes: Nodes = Field(default=(), description="Your own TFX components in the pipeline.")
    beam: BeamConfig = Field(default_factory=BeamConfig)
    metadata: MetadataConfig = Field(default_factory=MetadataConfig)
    output: OutputConfig
    warnings: tuple[RunWarning, ...] = Field(
        default=(),
        description=(
            "What `init` warned of. Each run repeats it, and a blessed model has a warning, until "
            "you have checked it and delete the line."
        ),
    )
    tracking: TrackingConfig | None = Field(
        default=None, description="Export runs to a tracking server. Default: no export."
    )
    cluster: Cluster | None = Field(
        default=None,
        examples=[
            {"kubeflow": {"image": "registry/name:1.0", "pipeline_root": "gs://bucket/folder"}}
        ],
        description="Settings of `compile`, `replay` and `submit`, by target.",
    )

    _origin: Origin = pydantic.PrivateAttr(default_factory=Origin)

    def with_origin(self, origin: Origin) -> PipelineConfig:
        """Set the origin of the values, and return this configuration."""
        self._origin = origin
        return self

    @property
    def origin(self) -> Origin:
        """The origin of the values, for messages."""
        return self._origin

    @pydantic.model_validator(mode="after")
    def _metrics_fit_the_label(self) -> PipelineConfig:
        self.evaluation.check_kind(self.label.kind)
        return self

    @pydantic.model_validator(mode="after")
    def _tuning_fits_the_training(self) -> PipelineConfig:
        if self.tuning is not None:
            kind = self.label.kind
            self.tuning.check(self.training, label_kind=kind, section="training", own="tuning")
        return self

    @property
    def image_columns(self) -> tuple[str, ...]:
        """Raw columns of encoded images."""
        return image_columns(self.data, self.features)

    @property
    def slices(self) -> dict[str, str]:
        """Raw column that a slice is by -> the field that names it first."""
        return dict.fromkeys(self.evaluation.slices, "evaluation.slices")

    @property
    def label(self) -> Label:
        """The label of the model.

        Raises:
            ValueError: The features name no label.
        """
        if self.features.label is None:
            raise ValueError(
                "features.label: required to train and evaluate; "
                "add label: {column: <name>, kind: binary | multiclass | regression}"
            )
        return self.features.label

    @property
    def trainings(self) -> tuple[TrainerConfig, ...]:
        """The training, or every combination of the values that tuning searches."""
        if self.tuning is None:
            return (self.training,)
        return tuple(self.tuning.combinations(self.training, section="training"))

    @property
    def training_functions(self) -> dict[str, str]:
        """Dotted path of each function that the trainings name -> the field that names it."""
        searched = self.tuning.search if self.tuning else {}
        found = {}
        for training in self.trainings:
            metrics = [name for name in training.metrics or () if "." in name]
            loss = [training.loss] if training.loss and "." in training.loss else []
            for field, names in (
                ("model_fn", [training.model_fn] if training.model_fn else []),
                ("loss", loss),
                ("metrics", metrics),
            ):
                section = "tuning.search" if field in searched else "training"
                found.update(dict.fromkeys(names, f"{section}.{field}"))
        return found

    @property
    def pipeline_root(self) -> str:
        """The folder of all artifacts; may be remote (`gs://...`)."""
        return f"{self.output.folder}/artifacts"

    @property
    def push_folder(self) -> str:
        """The folder of the pushed models; may be remote."""
        return self.serving.push_folder or f"{self.output.folder}/serving_model"

    @property
    def metadata_path(self) -> Path:
        """The SQLite file of a local run."""
        return Path(self.metadata.path or f"{self.output.folder}/metadata.sqlite")

    @property
    def log_folder(self) -> Path:
        """The folder of the logs of local runs."""
        return Path(self.output.folder) / "logs"


def image_columns(data: DataConfig, features: FeatureSpec) -> tuple[str, ...]:
    """Return the raw columns of encoded images: those of files, and those that are encoded so."""
    encoded = [
        name
        for group in features.groups
        if group.encode is not None and group.encode.kind == "image"
        for name in group.explicit
    ]
    of_files = ["image"] if data.source == "images" else list(data.files)
    return tuple(dict.fromkeys([*of_files, *encoded]))


def json_schema() -> str:
    """Return the JSON Schema of the YAML, for editors (`# yaml-language-server: $schema=...`)."""
    return json.dumps(PipelineConfig.model_json_schema(by_alias=True), indent=2)


def is_remote(path: str) -> bool:
    """Return whether a path is on a remote file system (`gs://...`), which is not checked."""
    return "://" in path and not path.startswith(PACKAGE_SCHEME)
