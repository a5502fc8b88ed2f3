"""The argument of a user's function `(context) -> component`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.common.json_types import JsonValue
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
        config: The checked configuration of the pipeline.
        inputs: `inputs:` of the row, as channels of the outputs.
        parameters: `parameters:` of the row.
        nodes: Id -> node, for the nodes before this one.
    """

    config: PipelineConfig
    inputs: Mapping[str, BaseChannel]
    parameters: Mapping[str, JsonValue]
    nodes: Mapping[str, BaseNode]

    def output(self, name: str) -> BaseChannel:
        """Return the channel of an output.

        Args:
            name: `Node.output`, such as `Transform.transformed_examples`.

        Raises:
            LookupError: No node before this one has it.
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
    """Return the message for an unknown output, with the nearest names."""
    node = name.partition(".")[0]
    own = [each for each in known if each.partition(".")[0] == node]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    shown = f"{node} has {', '.join(own)}" if own else f"There are {', '.join(known)}"
    return f"no such output before this node. {hint}{shown}."
