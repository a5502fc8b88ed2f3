r"""What each container of a compiled pipeline runs: TFX's own entry point, on a mended input.

    python -m pipeline.targets.entry_point --executor_class_path ... \
        --json_serialized_invocation_args ...

Open-source Kubeflow hands artifacts over without the types that TFX needs (its driver drops
`instance_schema`) and, in some versions, without names. Both are put back here: types from what the
compiler wrote down of the component's inputs and outputs, names from the artifacts' places.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

from pipeline.common.errors import ConfigError
from pipeline.common.object_stores import register_file_systems
from pipeline.common.process_end import end_process

INVOCATION = "--json_serialized_invocation_args"
INPUTS_SPEC = "--json_serialized_inputs_spec_args"
OUTPUTS_SPEC = "--json_serialized_outputs_spec_args"
_HAS_SCHEMA = ("instanceSchema", "schemaTitle")


def mended(invocation: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """Returns the ExecutorInput with a type and a name for each artifact.

    Args:
        invocation: ExecutorInput as JSON.
        inputs: ComponentInputsSpec as JSON: the types of input artifacts.
        outputs: ComponentOutputsSpec as JSON: those of output artifacts.
    """
    for side, spec in (("inputs", inputs), ("outputs", outputs)):
        for key, found in invocation.get(side, {}).get("artifacts", {}).items():
            declared = spec.get("artifacts", {}).get(key, {}).get("artifactType", {})
            for artifact in found.get("artifacts", []):
                kind = artifact.get("type", {})
                # Its own type is kept where it is one of TFX's; Kubeflow's are system.Artifact.
                if not kind.get("instanceSchema") and declared:
                    artifact["type"] = {k: v for k, v in declared.items() if k in _HAS_SCHEMA}
                artifact["name"] = artifact.get("name") or artifact.get("uri", key)
    return invocation


def arguments_of(argv: Sequence[str]) -> list[str]:
    """Returns the arguments for TFX's entry point."""
    given = list(argv)
    outputs = _taken(given, OUTPUTS_SPEC)
    inputs = given[given.index(INPUTS_SPEC) + 1] if INPUTS_SPEC in given else "{}"
    place = given.index(INVOCATION) + 1
    told = mended(json.loads(given[place]), json.loads(inputs), json.loads(outputs or "{}"))
    given[place] = json.dumps(told)
    return given


def _taken(given: list[str], flag: str) -> str | None:
    if flag not in given:
        return None
    place = given.index(flag)
    value = given[place + 1]
    del given[place : place + 2]
    return value


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(argv: Sequence[str]) -> None:
    """Runs the executor that the arguments name."""
    # As the first process of a container Python would ignore SIGTERM; training takes it over.
    signal.signal(signal.SIGTERM, _end)
    from absl import app
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor as tfx_entry

    register_file_systems(" ".join(argv))
    app.run(
        tfx_entry.main,
        argv=[argv[0], *arguments_of(argv[1:])],
        flags_parser=tfx_entry._parse_flags,
    )


def main_and_exit(argv: Sequence[str]) -> NoReturn:
    """Runs it as the whole of this process, and ends it with the exit code."""
    try:
        main(argv)
        code: object = 0
    except SystemExit as end:
        code = end.code
    except ConfigError as error:
        code = str(error)
    end_process(code)


if __name__ == "__main__":
    main_and_exit(sys.argv)
