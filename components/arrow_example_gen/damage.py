"""Name the Parquet file and row group that cannot be read, after a node has failed on it.

Beam's and TFX's readers report neither.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from tfx.dsl.io import fileio

from components.arrow_example_gen.decompress import open_raw
from components.arrow_example_gen.spans import escape

_ROWS = 65_536


@contextlib.contextmanager
def damage_named(*uris: str, beam_args: Iterable[Any]) -> Iterator[None]:
    """Replace an error of reading the examples under `uris` by one that names the place.

    The ends of the files are read before, because Beam takes an empty file for one without rows.

    Args:
        uris: folders of Examples artifacts.
        beam_args: of the node: Beam opens remote files with these options.

    Raises:
        ValueError: a file of the examples is damaged; names it and the row group.
    """
    FileSystems.set_options(PipelineOptions(list(beam_args)))
    if damage := find_damage(*uris, ends_only=True):
        raise ValueError(damage)
    try:
        yield
    except Exception as error:
        damage = find_damage(*uris) if may_be_damage(error) else None
        if damage is not None:
            raise ValueError(damage) from error
        raise


def may_be_damage(error: BaseException) -> bool:
    """Return whether Arrow raised the error, also on a worker: then its text is in the message."""
    text = "".join(traceback.format_exception(error)).lower()
    return "pyarrow" in text or "parquet" in text


def find_damage(*uris: str, ends_only: bool = False) -> str | None:
    """Return a sentence about the first Parquet file that cannot be read; None if all can.

    Args:
        uris: folders of Examples artifacts.
        ends_only: whether to read the ends of the files only, where it says what is in them, and
            no rows.
    """
    found = [(uri, file) for uri in uris for file in _files(uri)]
    for uri, file in found:
        place = file
        try:
            with open_raw(file) as stream:
                parquet = pq.ParquetFile(stream)
                for number in range(0 if ends_only else parquet.num_row_groups):
                    place = f"{file}, row group {number}"
                    columns = parquet.schema_arrow.names
                    for _ in parquet.iter_batches(_ROWS, row_groups=[number], columns=columns):
                        pass
        except (FileNotFoundError, PermissionError, ConnectionError, TimeoutError):
            raise
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            return f"{place}: {reason}. The file is damaged: delete {uri} and run again."
    return None


def _files(uri: str) -> list[str]:
    pattern = os.path.join(escape(uri), "Split-*", "*.parquet")
    return sorted(map(str, fileio.glob(pattern)))
