"""What TFX's runner says in its log, understood: the one place that knows its words.

TFX has no interface for progress. Its runner and its launcher log a format and the node's name or
the execution's number; the formats are those below, in each release that this project runs on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

NODE_STARTS = "Component %s is running."
NODE_ENDS = "Component %s is finished."
CACHED = "A cached execution %d is used."


@dataclass(frozen=True)
class NodeStarts:
    """A node begins."""

    name: str


@dataclass(frozen=True)
class NodeEnds:
    """A node has ended well."""

    name: str


@dataclass(frozen=True)
class NodeIsCached:
    """The running node takes what an earlier run made."""


def event_of(line: logging.LogRecord) -> NodeStarts | NodeEnds | NodeIsCached | None:
    """What a line of the log says of a node, if anything."""
    first = line.args[0] if isinstance(line.args, tuple) and line.args else line.args
    if line.msg == NODE_STARTS:
        return NodeStarts(str(first))
    if line.msg == NODE_ENDS:
        return NodeEnds(str(first))
    return NodeIsCached() if line.msg == CACHED else None
