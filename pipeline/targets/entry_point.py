r"""The program of each container of a compiled pipeline: TFX's entry point on a corrected input.

    python -m pipeline.targets.entry_point --executor_class_path ... \
        --json_serialized_invocation_args ...

Kubeflow passes artifacts without the types that TFX needs (its driver drops `instance_schema`)
and, since 2.5, with an output that no component declared (`executor-logs`). `executor_input`
corrects both with the component's inputs and outputs that the compiler recorded.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import missing_buckets, register_file_systems
from pipeline.common.process_end import run_and_exit
from pipeline.targets import executor_input
from pipeline.targets.directory_markers import directory_markers_removed
from pipeline.targets.spec_types import (
    DRIVER,
    INPUTS_SPEC,
    INVOCATION,
    OUTPUTS_SPEC,
    RUN_TIME_PARAMETERS,
    ExecutorInput,
    take_option,
)

_EXECUTOR_PROGRAM = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_DRIVER_PROGRAM = "tfx.orchestration.kubeflow.v2.file_based_example_gen.driver"


class _Invocation(NamedTuple):
    """The parsed arguments of a container.

    Attributes:
        arguments: Arguments for TFX's entry point, without the ExecutorInput.
        executor_input: The corrected ExecutorInput of the platform.
        handed_over: Names of the outputs in the platform's ExecutorInput.
    """

    arguments: list[str]
    executor_input: ExecutorInput
    handed_over: frozenset[str]

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
        with directory_markers_removed(invocation.executor_input):
            tfx_entry.main(parsed)
        invocation.restore_output_names()

    app.run(run, argv=[argv[0], *invocation.for_tfx()], flags_parser=tfx_entry._parse_flags)


def exit_code(argv: Sequence[str]) -> object:
    """Run `main` and return its exit code (as for SystemExit).

    Raises:
        RuntimeError: The node failed, and a bucket that it names does not exist.
    """
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


def main_and_exit(argv: Sequence[str]) -> NoReturn:
    """Run `main` and end this process with its exit code."""
    run_and_exit(lambda: exit_code(argv))


if __name__ == "__main__":
    main_and_exit(sys.argv)
