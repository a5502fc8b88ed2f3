"""A server on loopback that answers by functions, and can be made to fail."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    """What came in: `path` without the query, which is `query`."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What goes out.

    Attributes:
        body: bytes as they are, or what becomes JSON.
        status: of HTTP.
        kind: the body's type.
        seconds: before anything is sent.
        drip: seconds between two bytes of the body; 0: all at once.
        headers: more of them.
    """

    body: Any = None
    status: int = 200
    kind: str = "application/json"
    seconds: float = 0.0
    drip: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Loopback:
    """Answers each request by `answer`, but by `failures` where the request begins with a key.

    Attributes:
        answer: the API.
        failures: `"GET /path"` -> what is said there in its place.
        requests: all that came in.
        url: where it is.
    """

    answer: Callable[[Request], Answer]
    failures: dict[str, Answer] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def got(self, start: str) -> list[Request]:
        """The requests that begin so, `"POST /apis"`."""
        return [r for r in self.requests if f"{r.method} {r.path}".startswith(start)]

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Listen on a free port."""
        loopback = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                # A client that gave up has closed its end.
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()

            def serve(self) -> None:
                place = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                query = dict(parse_qsl(place.query, keep_blank_values=True))
                headers = {k.lower(): v for k, v in self.headers.items()}
                request = Request(self.command, place.path, query, headers, body)
                loopback.requests.append(request)
                line = f"{self.command} {place.path}"
                failures = (a for start, a in loopback.failures.items() if line.startswith(start))
                answer = next(failures, None) or loopback.answer(request)
                time.sleep(answer.seconds)
                said = answer.body
                said = said if isinstance(said, bytes) else json.dumps(said or {}).encode()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                for start in range(0, len(said), step := 1 if answer.drip else len(said) or 1):
                    self.wfile.write(said[start : start + step])
                    time.sleep(answer.drip)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

            def log_message(self, format: str, *args: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
