"""`python -m pipeline check-serving`: compare a server's answers to real rows with `predict`.

It does the same as TFX's InfraValidator does in a container, but without a container: a process
without this project's packages loads the model as the server does, and answers JSON over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonValue
from pipeline.run.input_rows import InputFormat
from pipeline.run.predictor import Predictor
from pipeline.serving.exported_model import (
    ExportedModel,
    find_version,
    local_copy,
    read_model,
)
from pipeline.serving.requests import (
    SIGNATURES,
    ServingRows,
    ServingTarget,
    first_rows,
    request_body,
    rows_file,
)
from pipeline.serving.server import Server, ServerError, running_server, stand_in

if TYPE_CHECKING:
    from components import CsvOptions

ROWS_PER_REQUEST = 32
# Two servers add float32 values in different orders.
RELATIVE, ABSOLUTE = 1e-4, 1e-5


@dataclass(frozen=True)
class CheckOptions:
    """Options of a check.

    Attributes:
        target: The server; decides which signatures are called.
        rows: Number of rows of the file to send.
        url: URL of a running server; None: start the stand-in.
        python: Interpreter of the stand-in; None: this one.
        kind: Format of the rows; None: derived from the file's name.
        csv_options: The CSV dialect; None: detected automatically.
    """

    target: ServingTarget = "kserve"
    rows: int = 100
    url: str | None = None
    python: Path | None = None
    kind: InputFormat | None = None
    csv_options: CsvOptions | None = None


class CheckFailed(Exception):
    """The server's answer is an error or differs from `predict`; names signature and row."""


def check_serving(model: str, source: str, options: CheckOptions) -> int:
    """Send rows to a server of the model and compare its answers with those of `predict`.

    Args:
        model: A SavedModel, or the folder of its numbered versions.
        source: File of rows.
        options: Options of the check.

    Returns:
        The exit code: 0, or 1 if an answer is wrong.

    Raises:
        ConfigError: The model, the file or an option is wrong; nothing was sent.
    """
    if options.url is not None and options.python is not None:
        raise ConfigError("--python runs the stand-in; leave it out with --url.")
    running = None if options.url is None else running_server(options.url)
    exported = read_model(find_version(model))
    with rows_file(source, exported.place, options.kind, options.csv_options) as found:
        rows = first_rows(found, exported, options.rows)
    with local_copy(exported.place) as folder:
        expected = Predictor(folder).outputs(rows.examples)
        try:
            serving = nullcontext(running) if running else stand_in(folder, options.python)
            with serving as server:
                counted = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
                print(f"Checking {exported.place} ({options.target}) with {counted} of {source}")
                print(f"server: {server.description}")
                for signature in SIGNATURES[options.target]:
                    difference = check_signature(server, exported, signature, rows, expected)
                    print(
                        f"{signature}: {counted} answered as predict does; "
                        f"largest difference {difference:.1e}"
                    )
        except (CheckFailed, ServerError) as error:
            print(f"check failed: {error}")
            return exit_codes.FAILED
    return exit_codes.DONE


def check_signature(
    server: Server,
    exported: ExportedModel,
    signature: str,
    rows: ServingRows,
    expected: dict[str, np.ndarray],
) -> float:
    """Send the rows to one signature: the first alone, as most clients do, the rest in batches.

    Args:
        server: The server.
        exported: The model.
        signature: The signature to call.
        rows: The rows to send.
        expected: `[rows, ...]` by output, as computed by `predict`.

    Returns:
        The largest difference of a number.

    Raises:
        CheckFailed: An answer is an error, or differs.
    """
    difference = 0.0
    starts = [0, *range(1, len(rows), ROWS_PER_REQUEST)]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        places = range(start, end)
        try:
            predictions = server.predict(request_body(exported, signature, rows, places))
        except ServerError as error:
            raise _refused(server, exported, signature, rows, places, error) from None
        outputs = exported.signatures[signature]
        answers = _by_output(predictions, outputs, len(places), f"{signature}, {rows.path}")
        for name in outputs:
            if name not in expected:
                raise CheckFailed(f"{signature}: predict has no output {name}")
            for place, answer in zip(places, answers[name], strict=True):
                where = f"{signature}, row {rows.numbers[place]} of {rows.path}: {name}"
                difference = max(difference, _compare(answer, expected[name][place], where))
    return difference


def _refused(
    server: Server,
    exported: ExportedModel,
    signature: str,
    rows: ServingRows,
    places: range,
    error: ServerError,
) -> CheckFailed:
    """Return an error that names the row of a request that the server refuses."""
    for place in places:
        try:
            server.predict(request_body(exported, signature, rows, range(place, place + 1)))
        except ServerError as alone:
            return CheckFailed(f"{signature}, row {rows.numbers[place]} of {rows.path}: {alone}")
    first, last = rows.numbers[places[0]], rows.numbers[places[-1]]
    return CheckFailed(
        f"{signature}, rows {first} to {last} of {rows.path} in one request: {error}"
    )


def _by_output(
    predictions: JsonValue, outputs: Sequence[str], count: int, where: str
) -> dict[str, list[JsonValue]]:
    if not isinstance(predictions, list) or len(predictions) != count:
        raise CheckFailed(f"{where}: {count} rows were sent, and the answer has another number")
    if len(outputs) == 1:
        return {outputs[0]: predictions}
    answers: dict[str, list[JsonValue]] = {}
    for name in outputs:
        if not all(isinstance(row, dict) and name in row for row in predictions):
            raise CheckFailed(f"{where}: the answer lacks the output {name}")
        answers[name] = [row[name] for row in predictions]
    return answers


def _compare(answer: JsonValue, expected: np.ndarray, where: str) -> float:
    """Return the largest difference between an answer and the expected value.

    Raises:
        CheckFailed: They differ by more than the tolerance.
    """
    if expected.dtype.kind in "OSU":
        texts = np.array(answer, object)
        wanted = np.vectorize(bytes.decode, otypes=[object])(expected)
        if texts.shape != wanted.shape or not (texts == wanted).all():
            raise CheckFailed(f"{where} is {texts.tolist()}, and predict gives {wanted.tolist()}")
        return 0.0
    try:
        numbers = np.array(answer, np.float64)
    except (TypeError, ValueError):
        raise CheckFailed(
            f"{where} is {str(answer)[:200]}, and predict gives {expected.tolist()}"
        ) from None
    wanted = np.asarray(expected, np.float64)
    close = numbers.shape == wanted.shape and np.allclose(
        numbers, wanted, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True
    )
    if not close:
        raise CheckFailed(f"{where} is {numbers.tolist()}, and predict gives {wanted.tolist()}")
    return float(np.nanmax(np.abs(numbers - wanted), initial=0.0))
