"""What a node of ours is: how it is built, after what, from which section, and what it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode


@dataclass(frozen=True)
class GraphContext:
    """A graph while it is built.

    Attributes:
        config: the checked configuration.
        blessed_models: folder of the records of blessed models, where the target has no resolver;
            None: the graph has TFX's resolver.
        baseline_model: with `blessed_models`, a model to compare with instead of the latest one.
        nodes: id -> node, of those that are built.
    """

    config: PipelineConfig
    blessed_models: str | None = None
    baseline_model: str | None = None
    nodes: dict[str, BaseNode] = field(default_factory=dict)

    def output(self, name: NodeName, key: str) -> Any:
        """Return the channel of a node's output."""
        return self.nodes[name].outputs[key]

    def schema(self) -> Any:
        """Return the channel of the raw data's schema, inferred or imported."""
        imported = NodeName.IMPORT_SCHEMA_GEN in self.nodes
        name = NodeName.IMPORT_SCHEMA_GEN if imported else NodeName.SCHEMA_GEN
        return self.output(name, "schema")


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A node of ours.

    Attributes:
        name: its id.
        build: makes the TFX node; the nodes of `after` that are in the graph are built by then.
        after: the nodes that it runs after, whether it takes an output of them or not.
        section: section of the YAML that configures it; None: no section does.
        is_used: whether the graph has it.
        main_outputs: outputs whose folders the summary shows; empty: the first one.
        rows: the rows that it reads and progress shows: all, those of the split that the model is
            evaluated on, or none that are known.
        reads_outside: its result depends on more than its inputs and settings, so a platform may
            not take it from its cache.
    """

    name: NodeName
    build: Callable[[GraphContext], BaseNode]
    after: tuple[NodeName, ...] = ()
    section: str | None = None
    is_used: Callable[[GraphContext], bool] = lambda context: True
    main_outputs: tuple[str, ...] = ()
    rows: Literal["all", "evaluated"] | None = None
    reads_outside: bool = False
