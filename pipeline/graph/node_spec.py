"""The specification of a built-in node: how it is built, its order, section and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode
    from tfx.types.channel import BaseChannel


@dataclass(frozen=True)
class GraphContext:
    """A graph while it is built.

    Attributes:
        config: The checked configuration.
        blessed_models: Folder of the records of blessed models, for a target without a resolver;
            None: use TFX's resolver.
        baseline_model: With `blessed_models`: the model to compare with instead of the latest one.
        nodes: Id -> node, for the nodes that are built.
    """

    config: PipelineConfig
    blessed_models: str | None = None
    baseline_model: str | None = None
    nodes: dict[str, BaseNode] = field(default_factory=dict)

    def output(self, name: NodeName, key: str) -> BaseChannel:
        """Return the channel of a node's output."""
        return self.nodes[name].outputs[key]

    def schema(self) -> BaseChannel:
        """Return the channel of the raw data's schema, inferred or imported."""
        imported = NodeName.IMPORT_SCHEMA_GEN in self.nodes
        name = NodeName.IMPORT_SCHEMA_GEN if imported else NodeName.SCHEMA_GEN
        return self.output(name, "schema")


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A built-in node.

    Attributes:
        name: The node's id.
        build: Creates the TFX node. The nodes of `after` that the graph has exist by then.
        after: The nodes that it runs after, including those whose outputs it does not read.
        section: Section of the YAML that configures it, or None.
        is_used: Whether the graph has it.
        main_outputs: Outputs whose folders the summary shows; empty: the first output.
        rows: The rows that progress shows: all, those of the evaluation split, or None.
        reads_outside: Whether its result depends on more than its inputs and settings, so that a
            platform must not cache it.
    """

    name: NodeName
    build: Callable[[GraphContext], BaseNode]
    after: tuple[NodeName, ...] = ()
    section: str | None = None
    is_used: Callable[[GraphContext], bool] = lambda context: True
    main_outputs: tuple[str, ...] = ()
    rows: Literal["all", "evaluated"] | None = None
    reads_outside: bool = False
