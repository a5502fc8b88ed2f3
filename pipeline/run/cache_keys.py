"""Make keys of TFX's cache independent of the location of the output folder.

TFX hashes an input artifact with its absolute path and its modification time, and a node's
parameters with the folder that models are pushed to. Without this, a moved folder would be trained
again.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def keys_without_places(folder: str) -> Iterator[None]:
    """Exclude the output folder from the launcher's cache keys during the block.

    Args:
        folder: `output.folder`, absolute.
    """
    from tfx.orchestration.portable import cache_utils

    original = cache_utils.get_cache_context

    def get_cache_context(*, input_artifacts: Any, parameters: Any, **others: Any) -> Any:
        return original(
            input_artifacts={
                key: [_without_place(artifact) for artifact in artifacts]
                for key, artifacts in (input_artifacts or {}).items()
            },
            parameters={
                key: value.replace(folder, "{output.folder}") if isinstance(value, str) else value
                for key, value in (parameters or {}).items()
            },
            **others,
        )

    cache_utils.get_cache_context = get_cache_context
    try:
        yield
    finally:
        cache_utils.get_cache_context = original


def _without_place(artifact: Any) -> Any:
    copied = copy.deepcopy(artifact)
    copied.uri = ""
    copied.mlmd_artifact.ClearField("last_update_time_since_epoch")
    return copied
