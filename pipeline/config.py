"""One YAML file as frozen pydantic models, with units, and errors that name the field.

The models are the reference of the YAML: `python -m pipeline schema` prints them as JSON Schema.
Relative paths are resolved against the YAML's own folder, so that a pipeline runs the same from
any working directory.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

from components import NormalizationLimits, TrainerConfig, TunerConfig
from pipeline.engines.presets import BeamConfig, Engine, InMemory
from pipeline.evaluation import EvaluationConfig
from transform import FeatureSpec, Label

PACKAGE_SCHEME = "package://"

Source = Literal["csv", "tfrecord", "parquet"]
SOURCES: tuple[Source, ...] = get_args(Source)


class ConfigError(ValueError):
    """The configuration is wrong; the message names file, field, value and fix."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataConfig(_Section):
    """Where the rows come from."""

    source: Source = Field(
        default="csv",
        description="File format: CSV with a header line, TFRecord of tf.Example, or Parquet.",
    )
    path: str = Field(
        description=(
            "A file, or a glob of files in one folder (`data/part-*.parquet`). "
            "`package://tfx/some/file.csv` is a file inside an installed Python package."
        )
    )
    eval_path: str | None = Field(
        default=None,
        description=(
            "A file or glob of its own for the eval split. "
            "Without it, `eval_percent` of the rows are held out by a hash of the row."
        ),
    )
    eval_percent: int = Field(
        default=33,
        ge=1,
        le=99,
        description="Share of the rows held out for evaluation, in percent.",
    )


class SchemaConfig(_Section):
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


class ServingConfig(_Section):
    """Where a blessed model goes."""

    push_folder: str | None = Field(
        default=None,
        description=(
            "Folder that gets one numbered sub-folder per pushed model, as TF Serving reads it. "
            "Default: `<output.folder>/serving_model`."
        ),
    )


class MetadataConfig(_Section):
    """The metadata store: what ran, on what, and what may be reused."""

    path: str | None = Field(
        default=None, description="SQLite file. Default: `<output.folder>/metadata.sqlite`."
    )
    cache: bool = Field(
        default=True,
        description="Reuse what a node wrote from the same inputs, settings and code.",
    )


class OutputConfig(_Section):
    """Where everything is written."""

    folder: str = Field(description="Folder for artifacts, logs, metadata and pushed models.")


PipelineName = Annotated[
    str,
    Field(
        pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$",
        description=(
            "Lower-case letters, digits and hyphens, 63 at most: "
            "the strictest of the targets' rules (Kubernetes labels)."
        ),
    ),
]


class PipelineConfig(_Section):
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
    beam: BeamConfig = Field(default_factory=InMemory)
    metadata: MetadataConfig = Field(default_factory=MetadataConfig)
    output: OutputConfig

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
        """What the model learns.

        Raises:
            ValueError: the features name no label.
        """
        if self.features.label is None:
            raise ValueError(
                "features.label: required to train and evaluate; "
                "add label: {column: <name>, kind: binary | multiclass | regression}"
            )
        return self.features.label

    @property
    def trainings(self) -> tuple[TrainerConfig, ...]:
        """The training, or every combination of the values that are searched for it."""
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
        """Folder of all artifacts; may be remote (`gs://...`)."""
        return f"{self.output.folder}/artifacts"

    @property
    def push_folder(self) -> str:
        """Folder of the pushed models; may be remote."""
        return self.serving.push_folder or f"{self.output.folder}/serving_model"

    @property
    def metadata_path(self) -> Path:
        """SQLite file of a local run."""
        return Path(self.metadata.path or f"{self.output.folder}/metadata.sqlite")

    @property
    def log_folder(self) -> Path:
        """Folder of the logs of local runs."""
        return Path(self.output.folder) / "logs"


_PATH_FIELDS = (
    ("data", "path"),
    ("data", "eval_path"),
    ("schema", "path"),
    ("serving", "push_folder"),
    ("metadata", "path"),
    ("output", "folder"),
)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Reads a pipeline's YAML.

    Args:
        path: the YAML file.
        overrides: `section.field=value` strings; the value is YAML (`training.epochs=3`,
            `features.groups.0.impute=mean`).

    Returns:
        The checked configuration, all paths absolute.

    Raises:
        ConfigError: the file cannot be read, is no YAML mapping, or does not fit the models. The
            message has one line per wrong field, with its line number, its value and the fix.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot read the configuration ({error.strerror}). "
            "Name an existing YAML file with --config; examples/taxi/pipeline.yaml is one."
        ) from None
    try:
        raw = yaml.safe_load(text)
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(
            f"{path}: expected a mapping with the sections "
            f"{', '.join(_field_names(PipelineConfig))}; found {type(raw).__name__}."
        )
    for override in overrides:
        _apply_override(raw, override)
    _resolve_paths(raw, path.resolve().parent)
    try:
        return PipelineConfig.model_validate(raw)
    except pydantic.ValidationError as error:
        raise ConfigError(_explain(error, path, raw, tree)) from None


def load_engine(engine: str, overrides: Sequence[str] = ()) -> Engine:
    """An engine's preset without a pipeline around it.

    Args:
        engine: as `beam.engine` in the YAML.
        overrides: `beam.field=value` strings.

    Raises:
        ConfigError: no such engine, or a field of it is wrong.
    """
    raw: dict[str, Any] = {"beam": {"engine": engine}}
    for override in overrides:
        _apply_override(raw, override)

    class Beam(_Section):
        beam: BeamConfig

    try:
        return Beam.model_validate(raw).beam
    except pydantic.ValidationError as error:
        raise ConfigError(_explain(error, Path(f"--engine {engine}"), raw, None)) from None


def json_schema() -> str:
    """JSON Schema of the YAML, for editors (`# yaml-language-server: $schema=...`)."""
    return json.dumps(PipelineConfig.model_json_schema(by_alias=True), indent=2)


def _apply_override(raw: dict[str, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not separator or not all(keys):
        raise ConfigError(
            f"--set {override}: expected section.field=value, "
            "for example --set training.global_batch_size=512."
        )
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not valid YAML: {error}") from None
    node: Any = raw
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                raise ConfigError(
                    f"--set {override}: {'.'.join(keys[:depth])} is a list of {len(node)}; "
                    f"{key!r} is no index into it (0 to {len(node) - 1})."
                )
            index: Any = int(key)
        elif isinstance(node, dict):
            index = key
            if not last and node.get(key) is None:
                node[key] = {}
        else:
            raise ConfigError(
                f"--set {override}: {'.'.join(keys[:depth])} holds {node!r}, "
                "which has no fields of its own."
            )
        if last:
            node[index] = value
        else:
            node = node[index]


def is_remote(path: str) -> bool:
    """Whether a path is on a remote file system (`gs://...`), which is not looked at."""
    return "://" in path and not path.startswith(PACKAGE_SCHEME)


def _resolve_paths(raw: dict[str, Any], folder: Path) -> None:
    for section, field in _PATH_FIELDS:
        values = raw.get(section)
        value = values.get(field) if isinstance(values, dict) else None
        if isinstance(value, str) and value and "://" not in value:
            raw[section][field] = str((folder / Path(value).expanduser()).resolve())


def _explain(error: pydantic.ValidationError, path: Path, raw: Any, tree: yaml.Node | None) -> str:
    """One line per wrong field: file, line, field, value, what would be accepted."""
    lines = []
    for item in error.errors():
        loc = _without_union_tags(item["loc"], raw, missing=item["type"] == "missing")
        field = ".".join(str(part) for part in loc) or "the whole file"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            lines.append(f"{field}: unknown key. {_suggest(item['loc'])}")
        elif item["type"] == "missing":
            lines.append(f"{field}: required, but not there. Add it.")
        elif isinstance(item["input"], dict | list | tuple | BaseModel):
            lines.append(f"{field}: {message}")
        else:
            lines.append(f"{field}={item['input']!r}: {message.rstrip('.')}.")
        line = _line_of(tree, loc)
        lines[-1] = f"{path}{f':{line}' if line else ''}: {lines[-1]}"
    return "\n".join(dict.fromkeys(lines))


def _without_union_tags(
    loc: tuple[int | str, ...], raw: Any, *, missing: bool
) -> tuple[int | str, ...]:
    """Drops the parts of a pydantic location that name a branch of a union, not a YAML key."""
    kept: list[int | str] = []
    node: Any = raw
    for depth, part in enumerate(loc):
        here: Any = dict(enumerate(node)) if isinstance(node, list) else node
        if isinstance(here, dict) and part in here:
            node = here[part]
        elif depth < len(loc) - 1 or not missing or not isinstance(node, dict):
            continue  # a union's branch, not the key that is missing
        kept.append(part)
    return tuple(kept)


def _suggest(loc: tuple[int | str, ...]) -> str:
    accepted = _accepted_names(loc[:-1])
    if not accepted:
        return "Remove it."
    near = difflib.get_close_matches(str(loc[-1]), accepted, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return f"{hint}Accepted here: {', '.join(accepted)}."


def _accepted_names(loc: tuple[int | str, ...]) -> list[str]:
    """Keys of the model at a pydantic location, which names the branch taken in each union."""
    models: list[type[BaseModel]] = [PipelineConfig]
    is_mapping = False
    for part in loc:
        if isinstance(part, int) or is_mapping:
            is_mapping = False  # a key of a mapping from names of the user's to sections
            continue
        fields = [
            field
            for model in models
            for name, field in model.model_fields.items()
            if part in (name, field.alias)
        ]
        if fields:
            models = _models_in(fields[0].annotation)
            is_mapping = get_origin(fields[0].annotation) is dict
        else:
            models = [model for model in models if part == _branch(model)] or models
    return _field_names(models[0]) if models else []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    arguments = getattr(annotation, "__args__", ())
    return [model for argument in arguments for model in _models_in(argument)]


def _branch(model: type[BaseModel]) -> str:
    """What pydantic calls a model's branch of a union: an engine its name, others their class."""
    engine = model.model_fields.get("engine")
    return engine.default if engine else model.__name__


def _field_names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _find(tree: yaml.Node | None, loc: tuple[int | str, ...]) -> yaml.Node | None:
    node = tree
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part] if part < len(node.value) else None
        else:
            return None
    return node


def _line_of(tree: yaml.Node | None, loc: tuple[int | str, ...]) -> int | None:
    """Line (from 1) of the field, or of the nearest section around it that is in the file."""
    for end in range(len(loc), 0, -1):
        parent = _find(tree, loc[: end - 1])
        if isinstance(parent, yaml.MappingNode):
            for key, _ in parent.value:
                if key.value == str(loc[end - 1]):
                    return key.start_mark.line + 1
        elif (node := _find(tree, loc[:end])) is not None:
            return node.start_mark.line + 1
    return None
