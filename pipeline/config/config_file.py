"""Read the YAML of a pipeline: paths, overrides, and validation by the models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.common.nearest_file import did_you_mean
from pipeline.config.config import PipelineConfig, is_remote
from pipeline.config.config_errors import check_fields, field_names
from pipeline.config.origin import Origin
from pipeline.config.yaml_errors import yaml_error_text

_PATH_FIELDS = (
    ("data", "path"),
    ("data", "eval_path"),
    ("schema", "path"),
    ("serving", "push_folder"),
    ("metadata", "path"),
    ("output", "folder"),
)
_EVAL_FOLDERS = ("val", "validation", "eval", "test")  # the first one beside `train` is taken
_MOST_VALUES = 200_000  # of a vocabulary in a file


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Return the checked configuration of a YAML, with absolute paths.

    Args:
        path: The YAML file.
        overrides: `section.field=value`; the value is YAML (`features.groups.0.impute=mean`).

    Raises:
        ConfigError: One line per wrong field: line number, value and fix.
    """
    path = Path(path)
    text = _read_text(
        path,
        where=str(path),
        what="the configuration",
        hint="Name an existing YAML file with --config; examples/taxi/pipeline.yaml is one.",
    )
    try:
        raw = yaml.safe_load(text)
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(yaml_error_text(error, text, str(path))) from None
    _refuse_twice(tree, path)
    if not isinstance(raw, dict):
        raise ConfigError(
            f"{path}: expected a mapping with the sections "
            f"{', '.join(field_names(PipelineConfig))}; found {type(raw).__name__}."
        )
    for override in overrides:
        _apply_override(raw, override)
    _resolve_paths(raw, path.resolve().parent)
    _find_split_folders(raw)
    _read_vocabularies(raw, path.resolve().parent)
    config = check_fields(PipelineConfig, raw, path, tree, overrides)
    return config.with_origin(Origin(path, tree, overrides))


def config_of_text(text: str, folder: Path) -> PipelineConfig:
    """Return the configuration that a YAML of this package will have in a folder."""
    raw = yaml.safe_load(text)
    _resolve_paths(raw, folder.resolve())
    _find_split_folders(raw)
    _read_vocabularies(raw, folder.resolve())
    return PipelineConfig.model_validate(raw)


def _refuse_twice(node: yaml.Node | None, path: Path, above: str = "") -> None:
    """Raise ConfigError for a duplicate key, because YAML readers use the last one."""
    if isinstance(node, yaml.SequenceNode):
        for index, each in enumerate(node.value):
            _refuse_twice(each, path, f"{above}{index}.")
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines and key.tag != "tag:yaml.org,2002:merge":
            raise ConfigError(
                f"{path}:{line}: {above}{name} is also on line {lines[name]}; remove one."
            )
        lines[name] = line
        _refuse_twice(value, path, f"{above}{name}.")


def _apply_override(raw: JsonObject, override: str) -> None:
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
    _set_value(raw, dotted.strip(), value, shown=f"--set {override}")


def _set_value(raw: JsonObject, dotted: str, value: JsonValue, *, shown: str) -> None:
    """Set a field of the YAML, `section.field` with indices of lists, in place.

    A ConfigError, which shows the assignment `shown`, if the path does not lead to a field.
    """
    keys = dotted.split(".")
    node: JsonValue = raw
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                raise ConfigError(
                    f"{shown}: {'.'.join(keys[:depth])} is a list of {len(node)}; "
                    f"{key!r} is not an index into it (0 to {len(node) - 1})."
                )
            index: JsonValue = int(key)
        elif isinstance(node, dict):
            index = key
            if not last and node.get(key) is None:
                node[key] = {}
        else:
            raise ConfigError(
                f"{shown}: {'.'.join(keys[:depth])} is {node!r}, which has no fields; set "
                f"{'.'.join(keys[:depth])} itself."
            )
        if last:
            node[index] = value
        else:
            node = node[index]


def _resolve_paths(raw: JsonObject, folder: Path) -> None:
    for section, field in _PATH_FIELDS:
        values = raw.get(section)
        value = values.get(field) if isinstance(values, dict) else None
        if isinstance(value, str) and value and "://" not in value:
            raw[section][field] = str((folder / Path(value).expanduser()).resolve())


def _find_split_folders(raw: JsonObject) -> None:
    """Take `train` and `val` of a folder of images as the splits, which would be two classes."""
    data = raw.get("data")
    if isinstance(data, dict) and data.get("source") == "images" and not data.get("eval_path"):
        folders = split_folders(str(data.get("path")))
        data.update(zip(("path", "eval_path"), map(str, folders), strict=False))


def split_folders(path: str) -> tuple[Path, ...]:
    """Return the folders `train` and `val`, or another of `_EVAL_FOLDERS`, of a folder, or ()."""
    train = Path(path, "train")
    held_out = [train.with_name(name) for name in _EVAL_FOLDERS if train.with_name(name).is_dir()]
    return (train, held_out[0]) if held_out and train.is_dir() else ()


def _read_vocabularies(raw: JsonObject, folder: Path) -> None:
    """Replace `file` by `values` in each encoder: then a changed file changes the features."""
    for field, option in _vocabularies(raw.get("features")):
        if "file" not in option:
            continue
        if option.get("values") is not None:
            raise ConfigError(f"{field} has both file and values; remove one.")
        option["values"] = _vocabulary_lines(option.pop("file"), f"{field}.file", folder)


def _vocabularies(features: JsonValue) -> Iterator[tuple[str, JsonObject]]:
    for part in ("groups", "crosses"):
        entries = features.get(part) if isinstance(features, dict) else None
        for i, entry in enumerate(entries if isinstance(entries, list) else ()):
            encode = entry.get("encode") if isinstance(entry, dict) else None
            option = encode.get("vocabulary") if isinstance(encode, dict) else None
            if isinstance(option, dict):
                yield f"features.{part}.{i}.encode.vocabulary", option


def _vocabulary_lines(path: object, field: str, folder: Path) -> list[str]:
    if not isinstance(path, str) or not path or is_remote(path):
        raise ConfigError(
            f"{field}={path!r}: name a text file on this machine, one value per line."
        )
    file = folder / Path(path).expanduser()
    where, hint = f"{field}={path}", "Relative paths start at the folder of the YAML."
    text = _read_text(file, where=where, what=str(file), hint=hint)
    values = [line for line in text.split("\n") if line]
    if not values or len(values) > _MOST_VALUES:
        raise ConfigError(
            f"{where}: {file} has {len(values):,} values; give 1 to {_MOST_VALUES:,}, one per line."
        )
    seen: dict[str, int] = {}
    for number, value in enumerate(values, 1):
        if value in seen:
            raise ConfigError(
                f"{where}: {file} has {value!r} twice, as values {seen[value]} and {number}; "
                "remove one."
            )
        seen[value] = number
    return values


def _read_text(file: Path, *, where: str, what: str, hint: str) -> str:
    """Return the text of a file; a ConfigError if it cannot be read, or is not UTF-8.

    `where` is the setting that names it, `what` the file ("the configuration"), `hint` what to do
    if it does not exist: all for the message.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(
            f"{where}: cannot read {what} ({error.strerror}). {did_you_mean(file)}{hint}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot read {what} ({error.strerror}). {hint}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{where}: {what} is not UTF-8 (byte {error.start}). Save it as UTF-8."
        ) from None
