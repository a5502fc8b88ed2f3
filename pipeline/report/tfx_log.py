"""Parse the log of TFX's runner. All knowledge of its formats is in this module.

TFX has no interface for progress. Its runner and its launcher log a format together with the node's
name or the execution's number. The formats below are those of each supported TFX release.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

NODE_STARTS = "Component %s is running."
NODE_ENDS = "Component %s is finished."
CACHED = "A cached execution %d is used."


@dataclass(frozen=True)
class NodeStarts:
    """A node starts."""

    name: str


@dataclass(frozen=True)
class NodeEnds:
    """A node has ended successfully."""

    name: str


@dataclass(frozen=True)
class NodeIsCached:
    """The running node reuses the outputs of an earlier run."""


def event_of(line: logging.LogRecord) -> NodeStarts | NodeEnds | NodeIsCached | None:
    """Return the node event in a log record, or None."""
    first = line.args[0] if isinstance(line.args, tuple) and line.args else line.args
    if line.msg == NODE_STARTS:
        return NodeStarts(str(first))
    if line.msg == NODE_ENDS:
        return NodeEnds(str(first))
    return NodeIsCached() if line.msg == CACHED else None
