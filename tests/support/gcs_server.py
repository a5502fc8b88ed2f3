"""A Google Cloud Storage on loopback: what TensorFlow's file system, Beam and google.auth ask it.

TensorFlow has Google's hosts compiled in, so the server is an HTTPS proxy that answers in their
place, with a certificate from `google_certificates`. `environment` has the variables by which
TensorFlow (libcurl) and requests find it, and the key of a service account whose tokens it issues.
Other hosts are refused.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gcs_objects import FakeGcs
from google_certificates import HOSTS, write_certificates


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[FakeGcs]:
    """Listens on a port of loopback.

    Args:
        folder: gets the certificates and the service account's key.
    """
    gcs = FakeGcs()
    files = write_certificates(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.certificate, files.key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_CONNECT(self) -> None:
            if self.path.partition(":")[0] not in HOSTS:
                self.send_error(403, f"{self.path} is not a host of the fake")
                return
            self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            self.connection = tls.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb")
            self.close_connection = False

        def handle_expect_100(self) -> bool:
            proceed = super().handle_expect_100()
            self.wfile.flush()  # libcurl waits a second for it before each upload
            return proceed

        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = gcs.answer(self.command, self.path, headers, self._body())
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)
            self.wfile.flush()

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    gcs.environment.update(
        HTTPS_PROXY=f"http://127.0.0.1:{server.server_port}",
        https_proxy=f"http://127.0.0.1:{server.server_port}",
        NO_PROXY="127.0.0.1,localhost",
        no_proxy="127.0.0.1,localhost",
        CURL_CA_BUNDLE=str(files.authority),
        REQUESTS_CA_BUNDLE=str(files.authority),
        GOOGLE_APPLICATION_CREDENTIALS=str(files.account),
    )
    try:
        yield gcs
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
