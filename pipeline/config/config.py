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

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from components import CsvOptions, NormalizationLimits
from components.arrow_example_gen.spans import check_pattern, has_placeholders
from pipeline.common.sources import Source
from pipeline.config.cluster import Cluster
from pipeline.config.evaluation import EvaluationConfig
from pipeline.config.nodes import Nodes
from pipeline.config.origin import Origin
from pipeline.engines.in_memory import InMemory
from pipeline.engines.table import BeamConfig
from trainer_module import TrainerConfig, TunerConfig
from transform import FeatureSpec, Label

PACKAGE_SCHEME = "package://"


class Section(BaseModel):
    """What every section of the YAML is: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


SplitBy = Literal["content", "row", "stratified", "time", "group"]


class SplitConfig(Section):
    """What decides which split a row comes into."""

    by: SplitBy = Field(
        default="content",
        description=(
            "`content`: a hash of the row, so that equal rows come together. "
            "`row`: that and the row's place in its file, so that equal rows are split too. "
            "`stratified`: as `row`, with each class's share in each split. "
            "`time`: the earliest rows train, the latest are held out. "
            "`group`: rows with the same value of a column come together."
        ),
    )
    column: str | None = Field(
        default=None,
        description=(
            "Column of the time (numbers, or texts that sort like 2024-05-31) or of the group "
            "(whole numbers or texts); of `stratified`, in place of the label."
        ),
    )

    @pydantic.model_validator(mode="after")
    def _named(self) -> SplitConfig:
        if self.by in ("time", "group") and self.column is None:
            raise ValueError(f"by: {self.by} needs `column`, the name of the column")
        if self.by in ("content", "row") and self.column is not None:
            raise ValueError(
                f"column={self.column} does not go with by: {self.by}; use time, group or "
                "stratified, or leave it out"
            )
        return self


class DataConfig(Section):
    """Where the rows come from."""

    source: Source = Field(
        default="csv",
        description=(
            "File format: CSV with a header line, TFRecord of tf.Example, Parquet, or Arrow (IPC "
            "files, Feather)."
        ),
    )
    path: str = Field(
        description=(
            "A file, or a glob of files in one folder (`data/part-*.parquet`). CSV and TFRecord "
            "may be compressed: gzip, bzip2, xz, zstd, lz4, brotli, or a zip with one file in it. "
            "For Parquet and Arrow, also a folder, or a glob of folders "
            "(`sales/year=*/*.parquet`): those named `key=value` are columns. "
            "`package://tfx/some/file.csv` is a file inside an installed Python package. "
            "`{SPAN}`, or `{YYYY}`, `{MM}` and `{DD}`, is the latest number or date that has "
            "files, `{VERSION}` its latest version: `data/{YYYY}-{MM}-{DD}/rows-*.csv`."
        )
    )
    spans: int = Field(
        default=1,
        ge=1,
        description=(
            "With `{SPAN}` or a date in `path`: how many numbers or days up to the latest are read "
            "together, as far as they have files."
        ),
    )
    csv: CsvOptions = Field(
        default_factory=CsvOptions,
        description="How CSV files are written; what is not set is detected.",
    )
    eval_path: str | None = Field(
        default=None,
        description=(
            "A separate file or glob for the eval split. "
            "Without it, `eval_percent` of the rows are held out, as `split` says."
        ),
    )
    eval_percent: int = Field(
        default=33,
        ge=1,
        le=99,
        description="Share of the rows held out for evaluation, in percent.",
    )
    test_percent: int = Field(
        default=0,
        ge=0,
        le=98,
        description=(
            "Share of the rows for a third split, `test`, in percent: the Evaluator judges the "
            "model on it, and neither training nor tuning sees it."
        ),
    )
    split: SplitConfig = Field(
        default_factory=SplitConfig, description="What decides which split a row comes into."
    )
    drop_rows_without_label: bool = Field(
        default=False,
        description="Leave rows out whose label is missing; else one of them is an error.",
    )

    @pydantic.model_validator(mode="after")
    def _can_be_split(self) -> DataConfig:
        if self.eval_percent + self.test_percent > 99:
            raise ValueError(
                f"eval_percent={self.eval_percent} and test_percent={self.test_percent} leave "
                "nothing to train on; their sum may be 99 at most"
            )
        if self.eval_path and (self.test_percent or self.split != SplitConfig()):
            raise ValueError(
                "eval_path names the rows of the eval split, so that nothing is split; leave out "
                "test_percent and split, or eval_path"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _placeholders_fit(self) -> DataConfig:
        for path in filter(None, (self.path, self.eval_path)):
            check_pattern(path)
        if self.eval_path and has_placeholders(self.path) != has_placeholders(self.eval_path):
            raise ValueError(
                f"path={self.path} and eval_path={self.eval_path}: {{SPAN}} or a date is in one of "
                "them alone; put it into both"
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
        description="A reviewed `schema.pbtxt`. Without it, the schema is inferred from the data.",
    )


class NormalizationConfig(NormalizationLimits):
    """What NormalizationValidator demands of the transformed features, before any training."""

    on_failure: Literal["fail", "warn"] = Field(
        default="fail",
        description="A violated limit stops the pipeline (`fail`) or is logged (`warn`).",
    )


class ServingConfig(Section):
    """Where a blessed model goes."""

    push_folder: str | None = Field(
        default=None,
        description=(
            "Folder that gets one numbered sub-folder per pushed model, as TF Serving reads it. "
            "Default: `<output.folder>/serving_model`."
        ),
    )


class MetadataConfig(Section):
    """The metadata store: what ran, on what, and what may be reused."""

    path: str | None = Field(
        default=None, description="SQLite file. Default: `<output.folder>/metadata.sqlite`."
    )
    cache: bool = Field(
        default=True,
        description="Reuse what a node wrote from the same inputs, settings and code.",
    )


class OutputConfig(Section):
    """Where everything is written."""

    folder: str = Field(description="Folder for artifacts, logs, metadata and pushed models.")


_NAME = r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"


def _checked_name(name: str) -> str:
    if re.fullmatch(_NAME, name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    near = re.sub(r"[^a-z0-9]+", "-", plain).lstrip("-0123456789")[:63].rstrip("-")
    raise ValueError(
        "use lower-case letters, digits and hyphens, 63 at most, a letter first and no hyphen "
        f"last: {near or 'my-pipeline'!r} for example"
    )


PipelineName = Annotated[
    str,
    AfterValidator(_checked_name),
    Field(
        json_schema_extra={"pattern": _NAME},
        description=(
            "Lower-case letters, digits and hyphens, 63 at most: "
            "the strictest of the targets' rules (Kubernetes labels)."
        ),
    ),
]


class PipelineConfig(Section):
    """A whole pipeline: data in, pushed model out."""

    name: PipelineName
    data: DataConfig
    data_schema: SchemaConfig = Field(default_factory=SchemaConfig, alias="schema")
    features: FeatureSpec
    normalization: NormalizationConfig = Field(default_factory=NormalizationConfig)
    tuning: TunerConfig | None = Field(
        default=None,
        description="A search for better settings of the training, before it; null: none.",
    )
    training: TrainerConfig
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    serving: ServingConfig = Field(default_factory=ServingConfig)
    nodes: Nodes = Field(default=(), description="Your own TFX components in the pipeline.")
    beam: BeamConfig = Field(default_factory=InMemory)
    metadata: MetadataConfig = Field(default_factory=MetadataConfig)
    output: OutputConfig
    cluster: Cluster | None = Field(
        default=None, description="Where `compile`, `replay` and `submit` deploy the pipeline to."
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


def json_schema() -> str:
    """Return the JSON Schema of the YAML, for editors (`# yaml-language-server: $schema=...`)."""
    return json.dumps(PipelineConfig.model_json_schema(by_alias=True), indent=2)


def is_remote(path: str) -> bool:
    """Return whether a path is on a remote file system (`gs://...`), which is not checked."""
    return "://" in path and not path.startswith(PACKAGE_SCHEME)
