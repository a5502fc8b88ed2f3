r"""The program of each container of a compiled pipeline: TFX's entry point on a corrected input.

    python -m pipeline.targets.entry_point --executor_class_path ... \
        --json_serialized_invocation_args ...

Kubeflow passes artifacts without the types that TFX needs (its driver drops `instance_schema`)
and, since 2.5, with an output that no component declared (`executor-logs`). `executor_input`
corrects both with the component's inputs and outputs that the compiler recorded.

Afterwards it removes the objects `a/` of 0 bytes that TensorFlow's `makedirs("gs://bucket/a")`
writes. Kubeflow's launcher downloads each input artifact object by object: it writes `a/` as a file
`a`, and fails at the next object below it with `mkdir a: not a directory` (`DownloadBlob` in
backend/src/v2/objectstore/object_store.go, 2.0 to 2.17; kubeflow/pipelines#13476). No folder needs
its marker: on Google Cloud Storage a folder exists as long as an object is below it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.object_stores import missing_buckets, register_file_systems
from pipeline.common.process_end import run_and_exit
from pipeline.targets import executor_input
from pipeline.targets.executor_input import (
    DRIVER,
    INPUTS_SPEC,
    INVOCATION,
    OUTPUTS_SPEC,
    RUN_TIME_PARAMETERS,
    take_option,
)

_EXECUTOR_PROGRAM = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_DRIVER_PROGRAM = "tfx.orchestration.kubeflow.v2.file_based_example_gen.driver"
_SCHEME = "gs://"
# For one request to the store and its retries; the node has finished by then.
_TIMEOUT_SECONDS = 30.0


class _Invocation(NamedTuple):
    """The parsed arguments of a container."""

    arguments: list[str]  # for TFX's entry point, without the ExecutorInput
    executor_input: JsonObject  # the platform's, corrected
    handed_over: frozenset[str]  # names of the outputs in the platform's

    @classmethod
    def read(cls, argv: Sequence[str]) -> _Invocation:
        """Parse the arguments of a container."""
        arguments = list(argv)
        outputs = take_option(arguments, OUTPUTS_SPEC)
        inputs = arguments[arguments.index(INPUTS_SPEC) + 1] if INPUTS_SPEC in arguments else None
        given = json.loads(take_option(arguments, INVOCATION) or "{}")
        if packed := take_option(arguments, RUN_TIME_PARAMETERS):
            from pipeline.targets.run_parameters import set_parameters

            given = set_parameters(given, packed)
        prepared = executor_input.prepare(
            given,
            json.loads(inputs) if inputs else None,
            json.loads(outputs) if outputs else None,
            _is_known_type,
        )
        return cls(arguments, prepared, frozenset(given.get("outputs", {}).get("artifacts", {})))

    def for_tfx(self) -> list[str]:
        """Return the arguments for TFX's entry point."""
        return [*self.arguments, INVOCATION, json.dumps(self.executor_input)]

    def restore_output_names(self) -> None:
        """Rename the outputs in the file that TFX wrote to their names in the compiled file."""
        path = Path(self.executor_input.get("outputs", {}).get("outputFile", ""))
        if path.is_file():
            written = json.loads(path.read_text(encoding="utf-8"))
            renamed = executor_input.restore_names(written, self.handed_over)
            if renamed != written:
                path.write_text(json.dumps(renamed), encoding="utf-8")


def _is_known_type(title: str) -> bool:
    from tfx.orchestration.kubeflow.v2.compiler_utils import TITLE_TO_CLASS_PATH
    from tfx.utils import import_utils

    if title in TITLE_TO_CLASS_PATH:
        return True
    try:
        import_utils.import_class_by_path(title)  # the title of a user's type
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(argv: Sequence[str]) -> None:
    """Run the executor that the arguments name, or the driver before it."""
    # The first process of a container would ignore SIGTERM; training replaces this handler.
    signal.signal(signal.SIGTERM, _end)
    from absl import app

    register_file_systems(" ".join(argv))
    tfx_entry = importlib.import_module(_DRIVER_PROGRAM if DRIVER in argv else _EXECUTOR_PROGRAM)
    invocation = _Invocation.read([each for each in argv[1:] if each != DRIVER])

    def run(parsed: Any) -> None:
        try:
            tfx_entry.main(parsed)
        finally:
            _remove_directory_markers(invocation.executor_input)
        invocation.restore_output_names()

    app.run(run, argv=[argv[0], *invocation.for_tfx()], flags_parser=tfx_entry._parse_flags)


def _remove_directory_markers(executor_input: JsonObject) -> None:
    """Delete the objects of 0 bytes below `gs://` outputs whose names end with a slash.

    Never raises. The node has written all its outputs, and an error would discard them because of
    a permission or a network that only the removal needs. A warning names the remaining objects. A
    platform that downloads no inputs, such as Vertex, never sees the markers.
    """
    outputs = executor_input.get("outputs", {}).get("artifacts", {}).values()
    uris = [each.get("uri", "") for artifacts in outputs for each in artifacts.get("artifacts", [])]
    places = list(dict.fromkeys(uri for uri in uris if uri.startswith(_SCHEME)))
    if not places:
        return
    try:
        # Takes seconds to import, and other nodes do not need it. Like TensorFlow, it uses Google's
        # default credentials.
        from google.cloud import storage

        client = storage.Client()
        for place in places:
            _remove_below(client, place)
    except Exception as error:
        logging.getLogger(__name__).warning(
            "The empty objects that stand for folders below %s were not removed (%s: %s), so "
            "Kubeflow may fail to download the artifact for another node with `mkdir ...: not a "
            "directory`. Give the node's account the permissions storage.objects.list and "
            "storage.objects.delete, or delete the objects there whose names end with a slash.",
            ", ".join(places),
            type(error).__name__,
            error,
        )


def _remove_below(client: Any, uri: str) -> None:
    from google.api_core.exceptions import NotFound
    from google.cloud.storage.retry import DEFAULT_RETRY

    bucket, _, folder = uri.removeprefix(_SCHEME).partition("/")
    if not folder.strip("/"):
        return  # an artifact is never a whole bucket
    limits = {"retry": DEFAULT_RETRY.with_timeout(_TIMEOUT_SECONDS), "timeout": _TIMEOUT_SECONDS}
    # With the slash, so that `model` does not match `model_run`.
    prefix = f"{folder.rstrip('/')}/"
    fields = "items(name,size,generation),nextPageToken"
    for blob in list(client.list_blobs(bucket, prefix=prefix, fields=fields, **limits)):
        if blob.size == 0 and blob.name.endswith("/"):
            with contextlib.suppress(NotFound):  # another worker of the node has removed it
                # Only this generation: an object that is written in the meantime is kept.
                blob.delete(if_generation_match=blob.generation, **limits)


def exit_code(argv: Sequence[str]) -> object:
    """Run `main` and return its exit code (as for SystemExit); name buckets that do not exist."""
    try:
        main(argv)
    except SystemExit as end:
        return end.code
    except ConfigError as error:
        return str(error)
    except Exception as error:
        if missing := missing_buckets(" ".join(argv)):
            raise RuntimeError(f"{error} ({missing})") from error
        raise
    return 0


if __name__ == "__main__":
    run_and_exit(lambda: exit_code(sys.argv))
