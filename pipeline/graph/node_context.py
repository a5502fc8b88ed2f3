"""What a user's function `(context) -> component` is given to build its node."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.config.config import PipelineConfig

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode
    from tfx.types.channel import BaseChannel


@dataclass(frozen=True)
class NodeContext:
    """A node's row of `nodes:` and the nodes before it.

        def row_counter(context: NodeContext):
            return RowCounter(examples=context.output("Transform.transformed_examples"))

    Attributes:
        config: the checked configuration of the pipeline.
        inputs: `inputs:` of the row, each as the channel of that output.
        parameters: `parameters:` of the row.
        nodes: id -> node, of those that are built before this one.
    """

    config: PipelineConfig
    inputs: Mapping[str, BaseChannel]
    parameters: Mapping[str, Any]
    nodes: Mapping[str, BaseNode]

    def output(self, name: str) -> Any:
        """Return the channel of an output.

        Args:
            name: `Node.output`, such as `Transform.transformed_examples`.

        Raises:
            LookupError: no node before this one has it.
        """
        known = outputs_of(self.nodes)
        if name not in known:
            raise LookupError(missing_output(name, known))
        return known[name]


def outputs_of(nodes: Mapping[str, BaseNode]) -> dict[str, BaseChannel]:
    """Return `Node.output` -> channel."""
    return {
        f"{name}.{key}": channel
        for name, node in nodes.items()
        for key, channel in node.outputs.items()
    }


def missing_output(name: str, known: Mapping[str, BaseChannel]) -> str:
    """Return what is wrong with the name of an output, and the nearest ones."""
    node = name.partition(".")[0]
    own = [each for each in known if each.partition(".")[0] == node]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    shown = f"{node} has {', '.join(own)}" if own else f"There are {', '.join(known)}"
    return f"no such output before this node. {hint}{shown}."
