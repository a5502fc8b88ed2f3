"""TFRecord files on Beam: one pass for the types, one for the rows, in parallel by file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam
import tensorflow as tf
from apache_beam.pvalue import AsSingleton

from components.arrow_example_gen import tfrecord_table
from components.arrow_example_gen.columns import Kind
from components.arrow_example_gen.examples import ExampleEncoder
from components.arrow_example_gen.tfrecord_blocks import blocks
from components.arrow_example_gen.tfrecord_table import Seen

_Found = list[tuple[str, dict[str, Seen]]]


@beam.typehints.with_input_types(beam.Pipeline)
@beam.typehints.with_output_types(tuple[int, tf.train.Example])
class ReadTfrecord(beam.PTransform):
    """TFRecord files as tf.Examples of all columns, each with its number in the file."""

    def __init__(self, files: Iterable[str]):
        super().__init__()
        self._files = list(files)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Read the files on workers, each of them twice."""
        files = (
            pipeline
            | "Files" >> beam.Create(self._files, reshuffle=False)
            | "Spread" >> beam.Reshuffle()
        )
        kinds = (
            files
            | "Types" >> beam.Map(_examined)
            | "Together" >> beam.CombineGlobally(_together).without_defaults()
            | "Kinds" >> beam.Map(_kinds)
        )
        return files | "Read" >> beam.ParDo(_Read(), AsSingleton(kinds))


def _examined(file: str) -> _Found:
    return [(file, tfrecord_table.examined(file, blocks(file)))]


def _together(found: Iterable[_Found]) -> _Found:
    return [each for several in found for each in several]


def _kinds(found: _Found) -> dict[str, Kind | None]:
    in_order = sorted(found, key=lambda each: each[0])  # the same message whoever came first
    return tfrecord_table.kinds_of(tfrecord_table.together(seen for _, seen in in_order))


class _Read(beam.DoFn):
    def process(
        self, file: str, kinds: Mapping[str, Kind | None]
    ) -> Iterator[tuple[int, tf.train.Example]]:
        encode = ExampleEncoder(kinds)
        for block in blocks(file):
            lists = tfrecord_table.all_columns(block, kinds)
            yield from enumerate(encode(lists, block.rows), block.start)
