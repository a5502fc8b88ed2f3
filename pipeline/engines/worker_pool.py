"""Python workers for `environment: external`: one process for each that the engine requests.

    python -m pipeline worker-pool --port 50000     # on each of the engine's machines

Beam's `apache_beam.runners.worker.worker_pool_main` speaks the same protocol and has two problems.
It starts the first `python` on PATH; if that Python lacks Beam, the job waits forever without a
message. It also never reads the pipe that it gives a worker as standard output, so a worker that
prints 64 KiB blocks. This pool starts the Python that it runs on, and its workers inherit its
standard output.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from concurrent import futures

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

_STOP_SECONDS = 5.0


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The servicer that starts and stops one process per worker."""

    def __init__(self) -> None:
        """Create a pool without workers."""
        self._workers: dict[str, subprocess.Popen] = {}
        self._lock = threading.Lock()

    def StartWorker(
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Start a worker, which connects to the endpoint in the request; called by the engine."""
        command = [
            *(sys.executable, "-m", "pipeline.engines.worker_pool"),
            *(request.worker_id, request.control_endpoint.url),
        ]
        logging.info("worker %s for %s", request.worker_id, request.control_endpoint.url)
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=f"{sys.executable}: {error}")
        with self._lock:
            self._workers[request.worker_id] = process
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Stop a worker that is no longer needed; called by the engine."""
        with self._lock:
            process = self._workers.pop(request.worker_id, None)
        if process:
            _stop(process)
        return beam_fn_api_pb2.StopWorkerResponse()

    def stop(self) -> None:
        """Stop all workers."""
        with self._lock:
            workers, self._workers = list(self._workers.values()), {}
        for process in workers:
            process.terminate()
        for process in workers:
            _stop(process)


def serve(host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        host: Address to listen on. Anyone who can reach it can run code here.
        port: Port; 0 selects a free one, which the log names.

    Raises:
        OSError: The port is taken, or the address is not one of this machine.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)
    pool = WorkerPool()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=16),
        options=[("grpc.so_reuseport", 0)],  # refuse a second pool on the same port
    )
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:
        bound = 0
    if not bound:
        raise OSError(
            f"cannot listen on {host}:{port}: the address is taken, or not this machine's"
        )
    server.start()
    logging.info("worker pool at %s:%d, workers run %s", host, bound, sys.executable)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    stopping.wait()
    server.stop(0)
    pool.stop()


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _work(worker_id: str, control_endpoint: str) -> None:
    """Run one worker in this process."""
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {worker_id} %(message)s")
    SdkHarness(control_endpoint, worker_id=worker_id).run()


if __name__ == "__main__":
    _work(*sys.argv[1:])
