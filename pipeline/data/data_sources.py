"""The files that a path of the YAML names, and the ExampleGen node that reads their format.

A folder of Parquet or Arrow files is one table. As in Spark and `pyarrow.dataset`, names that begin
with `.` or `_` (`_SUCCESS`, `_temporary`) are excluded, but a folder `_key=value` is not.
"""

from __future__ import annotations

import glob
import importlib.resources
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.arrow_example_gen.decompress import content_name
from components.arrow_example_gen.spans import (
    Span,
    escape,
    has_placeholders,
    latest_spans,
    literal_folder,
)
from pipeline.common.errors import ConfigError
from pipeline.common.nearest_file import did_you_mean
from pipeline.common.sources import COLUMNAR, SUFFIXES, Source, unknown_format
from pipeline.config.config import PACKAGE_SCHEME, DataConfig, image_columns, is_remote

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode

    from transform import FeatureSpec


def resolve(path: str, field: str) -> Path:
    """Return the local file or glob that a path of the YAML names.

    Raises:
        ConfigError: The package of a `package://` path is not installed or lacks the file.
    """
    if not path.startswith(PACKAGE_SCHEME):
        return Path(path)
    package, _, inside = path.removeprefix(PACKAGE_SCHEME).partition("/")
    try:
        resource = importlib.resources.files(package) / inside
    except ModuleNotFoundError:
        raise ConfigError(
            f"{field}={path}: no Python package {package!r} is installed. "
            "Install it, or name a file."
        ) from None
    return Path(str(resource))


def files(
    path: str,
    field: str,
    *,
    source: Source = "csv",
    base: str = "the YAML's own folder",
    spans: int = 1,
) -> list[Path]:
    """Return the sorted local files of a path or glob; only the latest spans, by `data.spans`.

    Args:
        path: File, glob or `package://...`; for Parquet and Arrow also a folder. For images, one
            folder, which is returned.
        field: The field of the path, for messages.
        source: Format of the files.
        base: Base of relative paths, for messages.
        spans: Number of spans, if the path has {SPAN} or a date.

    Raises:
        ConfigError: There is no file, or one is empty or not a file.
    """
    folder, pattern = place(path, field, source=source)
    patterns = [pattern]
    if has_placeholders(path):
        patterns = [span.pattern for span in _local_spans(path, field, source=source, spans=spans)]
    found = [
        Path(name)
        for each in patterns
        for name in sorted(glob.glob(f"{escape(folder)}/{each}" if folder else each))
    ]
    if not found:
        raise ConfigError(
            f"{field}={path}: no such file. {did_you_mean(resolve(path, field))}Relative paths "
            f"start at {base} (looked for {resolve(path, field)})."
        )
    for file in found:
        if source == "images":
            if not any(_visible(file)):
                what = "a folder without files" if file.is_dir() else "not a folder"
                raise ConfigError(f"{field}={path}: {what}. Name a folder of images.")
        elif file.is_dir():
            raise ConfigError(
                f"{field}={path}: {file} is a folder. Name the files in it: {file}/*."
            )
        elif file.stat().st_size == 0:
            raise ConfigError(
                f"{field}={path}: {file} is empty (0 bytes). It needs at least one row."
            )
    return found


def _local_spans(path: str, field: str, *, source: Source, spans: int) -> list[Span]:
    """Return the latest local spans of a path with {SPAN} or a date, latest last."""
    folder, pattern = place(path, field, source=source)
    try:
        return latest_spans(folder, {field: pattern}, glob.glob, count=spans)[field]
    except ValueError as error:
        raise ConfigError(f"{field}={path}: {error}") from None


def column_folders(path: str, field: str, *, source: Source, spans: int = 1) -> list[str]:
    """Return, for each span, the local folder below which `key=value` folders are columns."""
    folder, _ = place(path, field, source=source)
    if not has_placeholders(path):
        return [folder]
    found = _local_spans(path, field, source=source, spans=spans)
    return [literal_folder(folder, each.pattern) for each in found]


def place(path: str, field: str, *, source: Source) -> tuple[str, str]:
    """Return ExampleGen's folder without wildcards or placeholders, and the pattern below it.

    `[`, `*` and `?` are literal in the name of an existing file or folder.

    Raises:
        ConfigError: A folder's name has a wildcard, and the format does not support folders.
    """
    if is_remote(path):
        folder, pattern = _split(path, lambda _: False)
    else:
        full = str(resolve(path, field))
        if source in COLUMNAR and Path(full).is_dir():
            return full, _pattern_below(Path(full), path, field, source)
        folder, pattern = _split(full, os.path.exists)
    if source not in COLUMNAR and any(map(glob.has_magic, pattern.split("/")[:-1])):
        raise ConfigError(
            f"{field}={path}: a wildcard is allowed in the file's name, not in its folder."
        )
    return folder, pattern


def _split(path: str, exists: Callable[[str], bool]) -> tuple[str, str]:
    """Return the literal part of a path, and the rest as a pattern."""
    parts = path.split("/")
    for i, part in enumerate(parts):
        is_there = glob.has_magic(part) and exists("/".join(parts[: i + 1]))
        if has_placeholders(part) or (glob.has_magic(part) and not is_there):
            break
    else:
        i = len(parts) - 1
        parts[i] = glob.escape(parts[i])
    folder = "/".join(parts[:i])
    return folder or "/" * path.startswith("/"), "/".join(parts[i:])


def example_gen(data: DataConfig, features: FeatureSpec) -> BaseNode:
    """Return the node that imports rows as Parquet, split into `train`, `eval` and `test`."""
    from tfx.proto.example_gen_pb2 import Output, SplitConfig  # pyright: ignore[reportAttributeAccessIssue]

    from components import ArrowExampleGen, Images, Splitting

    folder, input_config = _input(data)
    output_config = None
    if not data.eval_path:
        split = SplitConfig.Split
        output_config = Output(
            split_config=SplitConfig(
                splits=[split(name=name, hash_buckets=n) for name, n in data.shares.items()],
                partition_feature_name=data.split.column if data.split.by == "group" else None,
            )
        )
    arguments: dict[str, Any] = {
        "input_base": folder,
        "input_config": input_config,
        "output_config": output_config,
        "range_config": _window(data),
    }
    column = split_column(data, features)
    if data.split.by not in ("content", "group"):
        arguments["splitting"] = Splitting(by=data.split.by, column=column)
    elif data.split.by == "content" and column and not data.eval_path:
        arguments["splitting"] = Splitting(by="group", column=column)
    if data.drop_rows_without_label and features.label is not None:
        arguments["required"] = [features.label.column]
    if images := image_columns(data, features):
        in_table = () if data.source == "images" else set(images) - set(data.files)
        arguments["images"] = Images(
            folder=data.source == "images",
            files=data.files,
            columns=tuple(sorted(in_table)),
            on_damage=data.on_damage,
        )
    if data.source == "csv":
        return ArrowExampleGen(csv=data.csv, **arguments)
    if data.source == "tfrecord":
        return ArrowExampleGen(tfrecord=True, **arguments)
    return ArrowExampleGen(**arguments)


def _window(data: DataConfig) -> Any:
    """Return ExampleGen's range of spans; None: the latest span, or no spans."""
    if data.spans == 1:
        return None
    from tfx.proto.range_config_pb2 import RangeConfig, RollingRange  # pyright: ignore[reportAttributeAccessIssue]

    if not has_placeholders(data.path):
        raise ConfigError(
            f"data.spans={data.spans}: data.path={data.path} has no {{SPAN}} and no date; put one "
            "into it (data/{YYYY}-{MM}-{DD}/*.csv), or leave data.spans out."
        )
    return RangeConfig(rolling_range=RollingRange(num_spans=data.spans))


def split_column(data: DataConfig, features: FeatureSpec) -> str | None:
    """Return the column that splits rows: the named column, the label, or an image's bytes."""
    if data.split.by == "content" and not data.eval_path:
        # The same picture under another name or label comes into the same split.
        return next(iter(image_columns(data, features)), None)
    if data.split.by == "stratified" and data.split.column is None and features.label is not None:
        return features.label.column
    return data.split.column


def _input(data: DataConfig) -> tuple[str, Any]:
    """Return ExampleGen's input: one folder, and a pattern below it per split."""
    from tfx.proto.example_gen_pb2 import Input  # pyright: ignore[reportAttributeAccessIssue]

    train = place(data.path, "data.path", source=data.source)
    split = Input.Split
    if not data.eval_path:
        return train[0], Input(splits=[split(name="all", pattern=train[1])])
    held_out = place(data.eval_path, "data.eval_path", source=data.source)
    base = _common_folder(train[0], held_out[0])
    patterns = []
    for folder, name in (train, held_out):
        below = folder.removeprefix(base).lstrip("/")
        patterns.append(f"{below if is_remote(base) else escape(below)}/{name}".lstrip("/"))
    return base, Input(
        splits=[
            split(name="train", pattern=patterns[0]),
            split(name="eval", pattern=patterns[1]),
        ]
    )


def _common_folder(first: str, second: str) -> str:
    parts = []
    for left, right in zip(first.split("/"), second.split("/"), strict=False):
        if left != right:
            break
        parts.append(left)
    return "/".join(parts) or "/"


def source_of(path: str) -> Source:
    """Return the format of a file by its name, or of the files in a folder or below it.

    Raises:
        ConfigError: The name does not identify the format.
    """
    if Path(path).is_dir():
        found = {SUFFIXES.get(file.suffix.lower()) for file in _visible(Path(path))}
        present: list[Source] = [source for source in (*COLUMNAR, "images") if source in found]
        return present[0] if present else "parquet"
    for suffix in reversed(Path(content_name(path)).suffixes):
        if suffix.lower() in SUFFIXES:
            return SUFFIXES[suffix.lower()]
    raise ConfigError(unknown_format(path))


def _pattern_below(folder: Path, path: str, field: str, source: Source) -> str:
    """Return the pattern of a format's files in a folder, or in folders below it."""
    endings = [ending for ending, of in SUFFIXES.items() if of == source]
    found = sorted(file for file in _visible(folder) if file.suffix.lower() in endings)
    names = sorted({f"*{file.suffix}" for file in found})
    if not found:
        raise ConfigError(
            f"{field}={path}: {folder} is a folder without "
            f"{' or '.join(f'*{ending}' for ending in endings)} files, in it or below it. "
            "Name the files in it."
        )
    if len(names) > 1:
        raise ConfigError(
            f"{field}={path}: {folder} has {' and '.join(names)} files. Give all the same ending."
        )
    levels = _levels(found[0], folder)
    for file in found:
        if _levels(file, folder) != levels:
            raise ConfigError(
                f"{field}={path}: the folders of {file} differ from those of {found[0]}. All files "
                "of a table need the same depth and the same key=value folders. Move it, or name "
                f"the files by a glob, {folder}/*/*{file.suffix}."
            )
    for star in ("*", "[!_]*"):
        parts = [each if each.endswith("=*") else star for each in levels]
        pattern = "/".join([*parts, star + found[0].suffix])
        matched = set(glob.glob(f"{escape(str(folder))}/{pattern}"))
        more = sorted(matched - set(map(str, found)))
        if not more:
            return pattern
    raise ConfigError(
        f"{field}={path}: {more[0]} is not a file, or is reached by a link. Remove it, or name "
        "the files by a glob."
    )


def _visible(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (Path(place, name) for name in files if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _levels(file: Path, folder: Path) -> list[str]:
    """Return the folders on a file's path as parts of a pattern."""
    parts = file.relative_to(folder).parts[:-1]
    return [f"{glob.escape(part.partition('=')[0])}=*" if "=" in part else "*" for part in parts]
