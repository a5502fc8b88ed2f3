"""Read TFRecord files of a user as the blocks that ArrowExampleGen reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.common.errors import ConfigError

if TYPE_CHECKING:
    from components.arrow_example_gen.columns import Kind
    from components.arrow_example_gen.tfrecord import Block, Seen


class FileBlock(NamedTuple):
    """Records of a file, and a description of their features."""

    block: Block
    features: Mapping[str, Seen]


def tfrecord_blocks(found: Iterable[Path]) -> Iterator[FileBlock]:
    """Yield the decoded records of all files.

    Raises:
        ConfigError: A file has another format or is damaged, or a record is not a tf.Example.
            Names file and record.
    """
    from components.arrow_example_gen.tfrecord import blocks, seen_in

    try:
        for file in found:
            for block in blocks(str(file)):
                yield FileBlock(block, seen_in(block, str(file)))
    except ValueError as error:
        hint = " Set data.source to its format." if "is not a TFRecord file" in str(error) else ""
        raise ConfigError(f"{error}{hint}") from None


def kinds_of(features: Iterable[Mapping[str, Seen]]) -> dict[str, Kind | None]:
    """Return feature -> type over several blocks; None if no record has a value.

    Raises:
        ConfigError: A feature has values of two types, or there is no feature.
    """
    from components.arrow_example_gen import tfrecord

    try:
        kinds = tfrecord.kinds_of(tfrecord.together(features))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not kinds:
        raise ConfigError("no record has a feature: these are not tf.Examples with columns.")
    return kinds
