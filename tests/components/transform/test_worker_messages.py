"""The size of the messages in which Beam's workers send their results."""

from __future__ import annotations

import pytest
from apache_beam.runners.worker import data_plane

from components.transform.worker_messages import limit_messages

NAMES = ("_DEFAULT_SIZE_FLUSH_THRESHOLD", "SizeBasedBufferingClosableOutputStream")


@pytest.fixture(autouse=True)
def beam_as_it_was(monkeypatch):
    for name in NAMES:
        monkeypatch.setattr(data_plane, name, getattr(data_plane, name))


def message_sizes():
    """Returns the sizes of the messages for 30 elements of 100 kB."""
    sizes = []
    stream = data_plane.ClosableOutputStream.create(
        lambda data: sizes.append(len(data)), lambda data: sizes.append(len(data)), 0
    )
    for _ in range(30):
        stream.write(b"0" * 100_000)
        stream.maybe_flush()
    stream.close()
    return sizes


def test_messages_are_small():
    for _ in range(2):
        limit_messages()
        assert message_sizes() == [1_100_000, 1_100_000, 800_000]
