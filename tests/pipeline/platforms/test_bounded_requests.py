"""Limits of a request: the time of all of it, and the size of its answer."""

from __future__ import annotations

import gzip
import socket
import time

import pytest
import urllib3
from loopback import Answer, Loopback

from pipeline.platforms import bounded_requests
from pipeline.platforms.bounded_requests import RequestTimedOut, ResponseTooLarge, send_bounded

# A server that is slower than any of these limits; a client that waits for it fails in this time.
NEVER = 600.0


@pytest.fixture
def server():
    loopback = Loopback(lambda request: Answer({"a": 1}))
    with loopback.serving():
        yield loopback


def get(url, seconds=60.0):
    # Its own limit, of each read, is not what is tested.
    pool = urllib3.PoolManager(timeout=urllib3.Timeout(NEVER), retries=False)
    return send_bounded(lambda: pool.request("GET", url, preload_content=False), seconds)


def test_an_answer_comes_with_its_body(server):
    response, body = get(server.url)
    assert (response.status, body) == (200, b'{"a": 1}')


def test_a_compressed_body_is_read(server):
    packed = gzip.compress(b"x" * 100_000)
    server.answer = lambda request: Answer(packed, headers={"Content-Encoding": "gzip"})
    assert get(server.url)[1] == b"x" * 100_000


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(b"x" * 10_000, drip=0.2), "answer within 1 s"),  # its start may come late, too
        (Answer(seconds=20.0), "no answer within 1 s"),
    ],
)
def test_a_slow_server_is_left_at_the_limit(server, answer, message):
    server.answer = lambda request: answer
    start = time.monotonic()
    with pytest.raises(RequestTimedOut, match=message):
        get(server.url, 1.0)
    assert time.monotonic() - start < NEVER


def test_an_incomplete_answer_is_named_as_such(server):
    """The response is there when the limit begins: no time limit of the start is tested."""
    server.answer = lambda request: Answer(b"x" * 10_000, drip=0.2)
    pool = urllib3.PoolManager(timeout=urllib3.Timeout(NEVER), retries=False)
    response = pool.request("GET", server.url, preload_content=False)
    with pytest.raises(RequestTimedOut, match="no complete answer within 1 s"):
        send_bounded(lambda: response, 1.0)


def test_headers_that_never_end_are_left_at_the_limit():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        import threading

        stop = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not stop.wait(0.1):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        threading.Thread(target=drip, daemon=True).start()
        try:
            with pytest.raises(RequestTimedOut, match="no answer within 1 s"):
                get(f"http://127.0.0.1:{listener.getsockname()[1]}", 1.0)
        finally:
            stop.set()


def test_an_endless_answer_is_left_at_the_size(server):
    server.answer = lambda request: Answer(b"x" * 2**20, endless=True)
    with pytest.raises(ResponseTooLarge, match="more than 64 MiB"):
        get(server.url)
    assert server.sent < 2 * bounded_requests.MAX_RESPONSE_BYTES


def test_a_small_answer_that_unpacks_to_a_large_one_is_left(server):
    packed = gzip.compress(bytes(2 * bounded_requests.MAX_RESPONSE_BYTES))
    server.answer = lambda request: Answer(packed, headers={"Content-Encoding": "gzip"})
    with pytest.raises(ResponseTooLarge):
        get(server.url)


def test_what_the_request_raises_reaches_the_caller():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        with pytest.raises(urllib3.exceptions.HTTPError):
            get(f"http://127.0.0.1:{taken.getsockname()[1]}")
