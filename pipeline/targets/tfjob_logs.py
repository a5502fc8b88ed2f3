"""The log of one pod, line by line while it is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pipeline.targets.tfjob_pod import CONTAINER


class PodLog:
    """A thread that reads a pod's log and reconnects if the connection ends early."""

    def __init__(
        self, core: Any, namespace: str, pod: str, on_line: Callable[[str], None], *, pause: float
    ) -> None:
        """Create a reader that is not started; `pause` is in seconds, between two connections."""
        self._core, self._namespace, self._pod = core, namespace, pod
        self._on_line, self._pause = on_line, pause
        self._ended = threading.Event()
        self._last = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait up to some seconds for the rest of the log of a pod that has ended, and stop."""
        self._ended.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            is_last = self._ended.is_set()
            self._read(follow=not is_last)
            if is_last or self._has_ended():
                return
            self._ended.wait(self._pause)

    def _has_ended(self) -> bool:
        """Return whether the container has ended, after reading the rest of the log."""
        import urllib3
        from kubernetes.client import ApiException

        try:
            pod = self._core.read_namespaced_pod(self._pod, self._namespace)
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            return getattr(error, "status", None) == 404
        if pod.status.phase not in ("Succeeded", "Failed"):
            return False
        self._read(follow=False)
        return True

    def _read(self, *, follow: bool) -> None:
        import urllib3
        from kubernetes.client import ApiException

        try:
            response = self._core.read_namespaced_pod_log(
                self._pod,
                self._namespace,
                container=CONTAINER,
                follow=follow,
                timestamps=True,
                _preload_content=False,
            )
            rest = b""
            for block in response.stream(4096, decode_content=True):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    self._take(line)
            if rest:
                self._take(rest)
        except (ApiException, urllib3.exceptions.HTTPError):
            return  # not started yet, or a connection error: the next read gets it all

    def _take(self, raw: bytes) -> None:
        """Pass a new line on; each line begins with its time, of fixed width."""
        time, _, line = raw.decode(errors="replace").rstrip("\r").partition(" ")
        if time > self._last:
            self._last = time
            self._on_line(line)
