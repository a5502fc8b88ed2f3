"""A stand-in for `tensorflow_model_server`: one model behind the REST API's predict call.

Run it as a script in a process with TensorFlow and without this project's packages. It loads the
model as the server does (a session, the tag `serve`, the model's init operation), reads JSON with
the dtypes of the signature, and answers as the server does.
Source: tensorflow_serving/util/json_tensor.cc and servables/tensorflow/predict_util.cc, 2.16.1.

    python -I stand_in.py --model_dir FOLDER --model_name NAME
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Json: TypeAlias = Any
"""A value of a JSON document."""
Proto: TypeAlias = Any
"""A message of TensorFlow: SignatureDef, TensorInfo."""

_OURS = ("pipeline", "components", "transform", "trainer_module", "shared_core")
_METHODS = ("predict", "classify", "regress")


class RequestError(ValueError):
    """The server would refuse the request."""


class NotOnTheServer:
    """An import hook that hides this project's packages, which a server does not have."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for a module of this project; other modules are found as usual."""
        if name.partition(".")[0] in _OURS:
            raise ModuleNotFoundError(f"{name} is not on a server", name=name)


class ServedModel:
    """A loaded SavedModel."""

    def __init__(self, folder: str) -> None:
        """Load a SavedModel.

        Args:
            folder: Folder of the SavedModel.
        """
        import tensorflow as tf

        self._tf = tf
        tf.compat.v1.disable_eager_execution()
        tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], folder)
        self._signatures = dict(loaded.signature_def)

    def predict(self, body: bytes) -> bytes:
        """Answer a request of the predict API.

        Raises:
            RequestError: The server would refuse the request.
        """
        try:
            request = json.loads(body)
        except ValueError as error:
            raise RequestError(f"JSON Parse error: {error}") from None
        if not isinstance(request, dict):
            raise RequestError("the body is not a JSON object")
        name = request.get("signature_name", "serving_default")
        signature = self._signatures.get(name) if isinstance(name, str) else None
        if signature is None:
            raise RequestError(f'Serving signature name: "{name}" not found in signature def')
        if signature.method_name not in [f"tensorflow/serving/{each}" for each in _METHODS]:
            raise RequestError(f"signature {name} has method_name {signature.method_name!r}")
        rows = "instances" in request
        if rows == ("inputs" in request):
            raise RequestError("give one of 'instances' and 'inputs'")
        given = self._by_rows(request, signature) if rows else self._by_columns(request, signature)
        feeds = {signature.inputs[key].name: value for key, value in given.items()}
        fetches = {key: info.name for key, info in signature.outputs.items()}
        try:
            found = self._session.run(fetches, feeds)
        except (self._tf.errors.OpError, ValueError, TypeError) as error:
            raise RequestError(_reason(error)) from None
        return _answer(found, rows=rows)

    def _by_rows(self, request: dict[str, Json], signature: Proto) -> dict[str, np.ndarray]:
        instances = request["instances"]
        if not isinstance(instances, list) or not instances:
            raise RequestError("'instances' is not a list with at least one value")
        inputs = signature.inputs
        named = isinstance(instances[0], dict) and not _is_base64(instances[0])
        if not named and len(inputs) > 1:
            raise RequestError("'instances' is a plain list, and the signature has several inputs")
        columns: dict[str, list[np.ndarray]] = {key: [] for key in inputs}
        for number, instance in enumerate(instances):
            if named != (isinstance(instance, dict) and not _is_base64(instance)):
                raise RequestError(f"element {number} of 'instances' is of another kind than 0")
            items = instance if named else {next(iter(inputs)): instance}
            for key, value in items.items():
                where = f"Failed to process element: {number} key: {key} of 'instances' list. "
                if key not in inputs:
                    raise RequestError(f"{where}JSON object: does not have named input: {key}")
                try:
                    columns[key].append(self._tensor(value, inputs[key]))
                except RequestError as error:
                    raise RequestError(f"{where}{error}") from None
                if columns[key][0].shape != columns[key][-1].shape:
                    raise RequestError(
                        f"{where}Expecting shape {list(columns[key][0].shape)} but got: "
                        f"{list(columns[key][-1].shape)}"
                    )
            if set(items) != set(inputs):
                raise RequestError(
                    f"Failed to process element: {number} of 'instances' list. keys must be equal "
                    f"to: {','.join(sorted(inputs))}"
                )
        import numpy as np

        return {key: np.stack(values) for key, values in columns.items()}

    def _by_columns(self, request: dict[str, Json], signature: Proto) -> dict[str, np.ndarray]:
        given, inputs = request["inputs"], signature.inputs
        if not isinstance(given, dict) or _is_base64(given):
            if len(inputs) > 1:
                raise RequestError("'inputs' is a plain value, and the signature has several")
            given = {next(iter(inputs)): given}
        for key in inputs:
            if key not in given:
                raise RequestError(f"Missing named input: {key} in 'inputs' object.")
        return {key: self._tensor(given[key], info) for key, info in inputs.items()}

    def _tensor(self, value: Json, info: Proto) -> np.ndarray:
        import numpy as np

        shape, level = [], value
        while isinstance(level, list):
            shape.append(len(level))
            level = level[0] if level else None
        kind = self._tf.as_dtype(info.dtype)
        leaves = [_leaf(each, kind.name) for each in _leaves(value, shape)]
        flat = np.empty(len(leaves), object if kind.name == "string" else kind.as_numpy_dtype)
        flat[:] = leaves
        return flat.reshape(shape)


def _reason(error: Exception) -> str:
    """Return TensorFlow's message without the lines that its Python client adds."""
    around = ("Graph execution error", "Detected at node", "File ", "[[")
    lines = [line.strip() for line in str(error).splitlines()]
    return next((each for each in lines if each and not each.startswith(around)), str(error))


def _leaves(value: Json, shape: list[int]) -> list[Json]:
    if not shape:
        if isinstance(value, list):
            raise RequestError("Encountered list at unexpected level")
        return [value]
    if not isinstance(value, list):
        raise RequestError(f"JSON Value: {json.dumps(value)} found at incorrect level")
    if len(value) != shape[0]:
        raise RequestError(
            f"Encountered list at unexpected size: {len(value)} expected size: {shape[0]}"
        )
    return [leaf for each in value for leaf in _leaves(each, shape[1:])]


def _leaf(value: Json, kind: str) -> bytes | float:
    wrong = RequestError(f"JSON Value: {json.dumps(value)} is not of expected type: {kind}")
    if kind == "string":
        if isinstance(value, str):
            return value.encode()
        if not _is_base64(value):
            raise wrong
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error:
            raise RequestError("Unable to base64 decode") from None
    if kind == "bool":
        if not isinstance(value, bool):
            raise wrong
        return value
    numbers = (int, float) if kind.startswith("float") else (int,)
    if isinstance(value, bool) or not isinstance(value, numbers):
        raise wrong
    if kind == "int64" and not -(2**63) <= value < 2**63:
        raise wrong
    return value


def _is_base64(value: Json) -> bool:
    return isinstance(value, dict) and list(value) == ["b64"] and isinstance(value["b64"], str)


def _answer(found: dict[str, np.ndarray], *, rows: bool) -> bytes:
    values = {key: _json_values(key, array) for key, array in found.items()}
    if not rows:
        answer: Json = values if len(values) > 1 else next(iter(values.values()))
        return json.dumps({"outputs": answer}, ensure_ascii=False).encode(errors="surrogateescape")
    sizes = {key: array.shape[:1] for key, array in found.items()}
    for key, size in sizes.items():
        if not size or size != next(iter(sizes.values())):
            raise RequestError(f"Tensor name: {key} has inconsistent batch size: {size}")
    each = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    predictions = each if len(values) > 1 else next(iter(values.values()))
    text = json.dumps({"predictions": predictions}, ensure_ascii=False)
    return text.encode(errors="surrogateescape")


def _json_values(name: str, array: np.ndarray) -> Json:
    """Return nested lists; texts as raw bytes, or in base64 if the name ends with _bytes."""

    def value(item: Json) -> Json:
        if isinstance(item, bytes) and name.endswith("_bytes"):
            return {"b64": base64.b64encode(item).decode()}
        if isinstance(item, bytes):
            return item.decode(errors="surrogateescape")
        return item

    def nested(item: Json) -> Json:
        return [nested(each) for each in item] if isinstance(item, list) else value(item)

    if array.dtype.kind == "f":
        array = array.astype(str).astype(float)  # the shortest text of a float32
    return nested(array.tolist())


def _handler(model: ServedModel, name: str) -> type[BaseHTTPRequestHandler]:
    predict = re.compile(rf"/v1/models/{re.escape(name)}(/versions/\d+)?:predict")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not predict.fullmatch(self.path):
                self._send(404, _error(f"Malformed request: POST {self.path}"))
                return
            try:
                self._send(200, model.predict(body))
            except RequestError as error:
                self._send(400, _error(str(error)))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()


def main() -> None:
    """Load the model, print the port and TensorFlow's version, and answer until stdin closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--model_name", required=True)
    arguments = parser.parse_args()
    sys.meta_path.insert(0, NotOnTheServer())
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    model = ServedModel(arguments.model_dir)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model, arguments.model_name))
    server.daemon_threads = True
    print(json.dumps({"port": server.server_address[1], "tensorflow": tf.__version__}), flush=True)
    import threading

    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # stdin closes whenever the parent ends
    os._exit(0)


if __name__ == "__main__":
    main()
