"""Does a worker pool start workers that can run? Asked as an engine asks, with a time limit.

A pool answers before its worker has started, and says nothing when that one fails: where `python`
on its PATH lacks Beam, an engine waits for ever.
"""

from __future__ import annotations

import contextlib
import queue
import uuid
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    endpoints_pb2,
)

_ANSWER_SECONDS = 10.0
_STOP_SECONDS = 20.0


class _Control(beam_fn_api_pb2_grpc.BeamFnControlServicer):
    """The engine's end: takes note of the worker that connects, and has no work for it."""

    def __init__(self) -> None:
        self.connected: queue.Queue[str] = queue.Queue()
        self._end: queue.Queue[None] = queue.Queue()

    def Control(self, requests: Any, context: Any) -> Iterator[Any]:
        self.connected.put(dict(context.invocation_metadata()).get("worker_id", ""))
        self._end.get()
        yield from ()

    def release(self) -> None:
        """Lets the worker go."""
        self._end.put(None)


def start_worker(pool: str, seconds: float) -> str:
    """Has the pool start one worker and waits until it connects.

    Args:
        pool: `host:port`.
        seconds: how long the worker may take.

    Returns:
        What is wrong, or nothing.
    """
    control = _Control()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(control, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    endpoint = endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{port}")
    worker_id = f"preflight-{uuid.uuid4().hex[:8]}"
    try:
        with grpc.insecure_channel(pool) as channel:
            stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
            request = beam_fn_api_pb2.StartWorkerRequest(
                worker_id=worker_id,
                control_endpoint=endpoint,
                logging_endpoint=endpoint,
                artifact_endpoint=endpoint,
                provision_endpoint=endpoint,
            )
            try:
                answer = stub.StartWorker(request, timeout=_ANSWER_SECONDS)
            except grpc.RpcError as error:
                return f"what answers there is no worker pool ({error.code().name})."
            if answer.error:
                return f"it cannot start a worker: {answer.error.strip()}."
            try:
                control.connected.get(timeout=seconds)
            except queue.Empty:
                return (
                    f"the worker that it started did not connect within {seconds:.0f} seconds. "
                    "Beam's own pool starts the first `python` on its PATH, which probably lacks "
                    "Beam: its output says so. Use `python -m pipeline worker-pool`."
                )
            finally:
                control.release()
                with contextlib.suppress(grpc.RpcError):
                    stop = beam_fn_api_pb2.StopWorkerRequest(worker_id=worker_id)
                    stub.StopWorker(stop, timeout=_STOP_SECONDS)
    finally:
        server.stop(0)
    return ""
