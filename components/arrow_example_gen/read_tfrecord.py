"""TFRecord files on Beam: one pass for the types, one for the rows, in parallel by file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from components.arrow_example_gen import tfrecord
from components.arrow_example_gen.columns import Kind, Rows, as_batch
from components.arrow_example_gen.tfrecord import Seen, blocks

_Found = list[tuple[str, dict[str, Seen]]]
_Kinds = Mapping[str, Kind | None]


class TfrecordSource:
    """TFRecord files of tf.Examples; reads each of them on a worker."""

    def __init__(self, files: Iterable[str]):
        self._files = list(files)

    def types(self) -> beam.PTransform:
        """Return the pass that finds the kinds: Pipeline -> one mapping, feature -> kind."""
        return _Types(self._files)

    def rows(self, types: Any) -> beam.PTransform:
        """Return the pass that reads: Pipeline -> `Rows`; `types` is the result of the other."""
        return _Rows(self._files, types)

    @staticmethod
    def kinds(types: _Kinds) -> _Kinds:
        """Return the kind of each column."""
        return types


class _Types(beam.PTransform):
    def __init__(self, files: list[str]):
        super().__init__()
        self._files = files

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Files" >> beam.Create(self._files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Types" >> beam.Map(_examined)
            | "Together" >> beam.CombineGlobally(_together).without_defaults()
            | "Kinds" >> beam.Map(_kinds)
        )


class _Rows(beam.PTransform):
    def __init__(self, files: list[str], types: Any):
        super().__init__()
        self._files, self._types = files, types

    def expand(self, pipeline: Any) -> Any:
        return (
            pipeline
            | "Files" >> beam.Create(self._files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(_read, AsSingleton(self._types))
        )


def _examined(file: str) -> _Found:
    return [(file, tfrecord.examined(file, blocks(file)))]


def _together(found: Iterable[_Found]) -> _Found:
    return [each for several in found for each in several]


def _kinds(found: _Found) -> dict[str, Kind | None]:
    in_order = sorted(found, key=lambda each: each[0])  # the same message whoever came first
    return tfrecord.kinds_of(tfrecord.together(seen for _, seen in in_order))


def _read(file: str, kinds: _Kinds) -> Iterator[Rows]:
    for block in blocks(file):
        lists = tfrecord.all_columns(block, kinds)
        places = np.arange(block.start, block.start + block.rows)
        yield places, as_batch(lists, kinds, block.rows)
