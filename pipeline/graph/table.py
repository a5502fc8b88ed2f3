"""The table of the built-in nodes, in the order in which they run."""

from __future__ import annotations

import importlib

from pipeline.graph.node_names import NodeName
from pipeline.graph.node_spec import NodeSpec

NODES: dict[str, NodeSpec] = {
    name.value: importlib.import_module(f"pipeline.graph.nodes.{name.name.lower()}").NODE
    for name in NodeName
}
"""Id -> the node."""
