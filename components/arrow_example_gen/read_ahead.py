"""A Python stream that Arrow's CSV reader reads ahead on a thread of its own, left without a hang.

A reader that is given up, by its user or for a row that it cannot read, waits in its destructor for
the read under way, and holds Python's lock while it waits; the read needs that lock (apache/arrow
cpp/src/arrow/util/async_generator.h, `BackgroundGenerator`). And a read that is under way when
Python ends aborts the process. So none may be under way when a reader is left.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

_PATIENCE = 1.0
_MOMENT = 0.05


class ReadAhead:
    """What Arrow reads, and that can be told to end."""

    closed = False

    def __init__(self, stream: BinaryIO):
        """Reads a stream, which stays open."""
        self._stream = stream
        self._reading = threading.Lock()
        self._ended = threading.Event()
        self.stopped = False

    def read(self, size: int) -> bytes:
        """Called by Arrow's thread."""
        found = b""
        try:
            with self._reading:
                if not self.stopped:
                    found = self._stream.read(size)
        finally:
            if not found:
                self._ended.set()
        return found

    def close(self) -> None:
        """Called by Arrow; the stream is its user's to close."""

    def open_csv(self, **options: Any) -> pa_csv.CSVStreamingReader:
        """`pyarrow.csv.open_csv` of this stream."""
        this: Any = self
        try:
            return pa_csv.open_csv(pa.PythonFile(this, mode="r"), **options)
        except BaseException:
            self._end()
            raise

    def give_up(self, reader: pa_csv.CSVStreamingReader) -> None:
        """Returns when the reader of this stream may be dropped before its end."""
        self.stopped = True
        with contextlib.suppress(StopIteration, pa.ArrowException):
            while True:  # what has been read already, to the end that comes now
                reader.read_next_batch()
        self._end()

    def _end(self) -> None:
        self.stopped = True
        while not self._ended.wait(_PATIENCE):  # a reader that failed may not ask for it any more
            if not self._reading.locked():
                break
        time.sleep(_MOMENT)  # for Arrow to let go of what it read last, which needs the lock, too
