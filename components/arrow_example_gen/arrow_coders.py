"""Coders of Arrow data whose size Beam learns without encoding them.

Beam estimates the size of the first ten elements that a step gets, and of some later ones. By
default it encodes them for that. Here an element is a batch of some megabytes, and a step gets few
of them, so each step encoded nearly all rows.
"""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa


class _ArrowCoder(beam.coders.Coder):
    """Encodes as a stream of Arrow's IPC format."""

    def encode(self, value: pa.RecordBatch | pa.Table) -> bytes:
        """Return the stream of a record batch or a table."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write(value)
        return sink.getvalue().to_pybytes()

    def estimate_size(self, value: pa.RecordBatch | pa.Table) -> int:
        """Return the bytes of the values."""
        return value.nbytes


class RecordBatchCoder(_ArrowCoder):
    """Codes record batches."""

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        """Return the record batch of a stream."""
        return pa.ipc.open_stream(encoded).read_next_batch()

    def to_type_hint(self) -> type:
        """Return the type of the elements."""
        return pa.RecordBatch


class TableCoder(_ArrowCoder):
    """Codes tables."""

    def decode(self, encoded: bytes) -> pa.Table:
        """Return the table of a stream."""
        return pa.ipc.open_stream(encoded).read_all()

    def to_type_hint(self) -> type:
        """Return the type of the elements."""
        return pa.Table


def register_arrow_coders() -> None:
    """Make Beam use these coders in the pipelines of this process, where a step has such a type."""
    # Not at the top: workers of ArrowExampleGen import this module, and need no TensorFlow.
    import tensorflow_data_validation  # noqa: F401  registers another coder when it is imported

    for coder in (RecordBatchCoder, TableCoder):
        beam.coders.registry.register_coder(coder().to_type_hint(), coder)
