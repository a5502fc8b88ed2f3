"""Messages of Beam's workers that an engine written in Java can hold."""

from __future__ import annotations

import functools

from apache_beam.runners.worker import data_plane

MESSAGE_BYTES = 1 << 20


def limit_messages() -> None:
    """Make the Beam workers of this process send messages of a MiB, or of one larger element.

    Beam's own are ten times as large, and no option of Beam changes that. Up to a hundred of each
    step wait in the memory of a Java engine (Beam's BeamFnDataInboundObserver counts messages, not
    bytes), which ended in "Java heap space".
    """
    if data_plane._DEFAULT_SIZE_FLUSH_THRESHOLD != MESSAGE_BYTES:
        data_plane._DEFAULT_SIZE_FLUSH_THRESHOLD = MESSAGE_BYTES
        data_plane.SizeBasedBufferingClosableOutputStream = functools.partial(
            data_plane.SizeBasedBufferingClosableOutputStream, size_flush_threshold=MESSAGE_BYTES
        )
