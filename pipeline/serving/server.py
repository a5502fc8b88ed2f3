"""A server to send requests to: a running server, or the stand-in in a separate process."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue

_SCRIPT = Path(__file__).with_name("stand_in.py")
_MOST_BYTES = 256 << 20


class ServerError(Exception):
    """The server does not answer, or refuses a request; the message says why."""


@dataclass(frozen=True)
class Server:
    """The server of a model.

    Attributes:
        url: URL of the model: `http://host/v1/models/name`.
        description: Description of the server.
        timeout: Time limit of one request in seconds.
    """

    url: str
    description: str
    timeout: float = 60.0

    def predict(self, body: bytes) -> JsonValue:
        """Return the `predictions` of a `:predict` request in row format.

        Raises:
            ServerError: No answer, an error, or an answer of another form.
        """
        request = urllib.request.Request(
            f"{self.url}:predict", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                text = response.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            raise ServerError(f"{error.code} {_refusal(error.read(4096))}") from None
        # Includes URLError and timeouts; an answer that is not HTTP, or an invalid port number.
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerError(f"no answer from {self.url} ({error})") from None
        try:
            return json.loads(text.decode())["predictions"]
        except UnicodeDecodeError as error:
            raise ServerError(f"the answer is not UTF-8 ({error}); an output is binary") from None
        except (ValueError, KeyError, TypeError):
            raise ServerError(f"the answer has no predictions: {text[:200]!r}") from None


def running_server(url: str) -> Server:
    """Return a server that is already running.

    Raises:
        ConfigError: The URL is not the URL of a model.
    """
    url = url.rstrip("/").removesuffix(":predict")
    if not url.startswith(("http://", "https://")) or "/v1/models/" not in url:
        raise ConfigError(
            f"--url={url}: is not the address of a model; give http://HOST:PORT/v1/models/NAME."
        )
    if "@" in urlsplit(url).netloc:
        raise ConfigError(
            "--url: has a user name or password, which are not sent; leave them out, and reach the "
            "server by kubectl port-forward or a proxy that signs in."
        )
    return Server(url, url)


@contextmanager
def stand_in(model: Path, python: Path | None = None) -> Iterator[Server]:
    """Serve a model with the stand-in during the block.

    Args:
        model: Folder of the SavedModel.
        python: Interpreter with TensorFlow that runs the stand-in; None: this one.

    Raises:
        ConfigError: The interpreter does not exist.
        ServerError: The model cannot be loaded there.
    """
    command = [str(python or sys.executable), "-I", str(_SCRIPT)]
    command += ["--model_dir", str(model.resolve()), "--model_name", "model"]
    with tempfile.TemporaryFile("w+") as log, tempfile.TemporaryDirectory() as folder:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                text=True,
            )
        except OSError as error:
            raise ConfigError(
                f"--python={python}: cannot be started ({error.strerror}); give the path of a "
                "Python that has TensorFlow."
            ) from None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                log.seek(0)
                lines = [each.strip() for each in log if each.strip()] or ["it ended"]
                raise ServerError(f"the model cannot be loaded: {lines[-1][:500]}")
            started = json.loads(line)
            yield Server(
                f"http://127.0.0.1:{started['port']}/v1/models/model",
                f"the stand-in with TensorFlow {started['tensorflow']}",
            )
        finally:
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _refusal(body: bytes) -> str:
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace")
    # A server's text may contain terminal escape sequences.
    return "".join(c if c.isprintable() else " " for c in text)[:500]
