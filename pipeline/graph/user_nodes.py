"""Add the nodes of the YAML's `nodes:` to a graph: checks, order and dependencies."""

from __future__ import annotations

import difflib
import graphlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pipeline.common.errors import ConfigError
from pipeline.graph.node_spec import GraphContext
from pipeline.graph.table import NODES
from pipeline.graph.user_component import UserNode, make_component

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode

Edges = dict[str, list[str]]
"""Node -> the nodes that it runs after."""


def add_user_nodes(context: GraphContext) -> None:
    """Build the nodes of `nodes:` and add them to a graph, in place.

    Args:
        context: The graph, with all built-in nodes.

    Raises:
        ConfigError: A row is wrong; the message has its line, value and fix.
    """
    config = context.config
    users = {row.id: UserNode(i, row, config) for i, row in enumerate(config.nodes)}
    if problems := list(_wrong_names(context, users)):
        raise ConfigError("\n".join(problems))
    edges: Edges = {
        name: [upstream.id for upstream in node.upstream_nodes]
        for name, node in context.nodes.items()
    }
    edges |= {name: list(_upstream_in_row(user)) for name, user in users.items()}
    for name, user in users.items():
        for later in user.row.before:
            edges[later].append(name)
    for name in _in_order(edges, users):
        if name in users:
            user = users[name]
            node = make_component(user, context.nodes, _groups(user, edges, context.nodes))
            edges[name] += _producers(user, node, context.nodes)
            _in_order(edges, users)
            node.add_upstream_nodes([context.nodes[each] for each in user.row.after])
            context.nodes[name] = node
    for name, user in users.items():
        for later in user.row.before:
            context.nodes[later].add_upstream_node(context.nodes[name])


def _upstream_in_row(user: UserNode) -> dict[str, None]:
    """Return the nodes that a row names as before it, in their order."""
    producers = [output.partition(".")[0] for output in user.row.inputs.values()]
    return dict.fromkeys([*user.row.after, *producers])


def _wrong_names(context: GraphContext, users: Mapping[str, UserNode]) -> Iterator[str]:
    """Yield a message for each id that is taken and each node that does not exist."""
    taken = {name.lower(): "a built-in node" for name in NODES}
    taken[context.config.name] = "the pipeline's name"
    for i, row in enumerate(context.config.nodes):
        user = UserNode(i, row, context.config)
        field = "name" if row.name else "class"
        if row.id.lower() in taken:
            text = f"{row.id} is {taken[row.id.lower()]} already. Add name: {row.id}2."
            yield str(user.error(field, text, row.name or row.path))
        taken.setdefault(row.id.lower(), f"the name of nodes.{i}")
        known = [*context.nodes, *users]
        named = [("after", name) for name in row.after] + [("before", n) for n in row.before]
        named += [(f"inputs.{key}", each.partition(".")[0]) for key, each in row.inputs.items()]
        for field, name in named:
            if name not in known:
                yield str(user.error(field, _no_node(name, known), name))


def _no_node(name: str, known: Iterable[str]) -> str:
    known = list(known)
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    inside = [each for each in known if len(name) > 3 and name.lower() in each.lower()]
    nearest = [folded[each] for each in near] or inside[:1]
    hint = f"Did you mean {nearest[0]}? " if nearest else ""
    why = ""
    if name in NODES:
        section = NODES[name].section
        why = f" in this pipeline (see `{section}:`)" if section else " in this pipeline"
    return f"no node has this name{why}. {hint}There are {', '.join(known)}."


def _in_order(edges: Edges, users: Mapping[str, UserNode]) -> list[str]:
    """Return the nodes, each after those that it runs after.

    Raises:
        ConfigError: Nodes wait for each other.
    """
    try:
        return list(graphlib.TopologicalSorter(edges).static_order())
    except graphlib.CycleError as error:
        circle = error.args[1]
        rows = [users[name] for name in circle if name in users]
        user = next((each for each in rows if each.row.before), rows[0])
        field = "before" if user.row.before else "after" if user.row.after else "inputs"
        raise user.error(
            field,
            f"these nodes would wait for each other: {' -> '.join(circle)}. Remove `before`, "
            "`after` or an input of one of them.",
        ) from None


def _groups(user: UserNode, edges: Edges, nodes: Mapping[str, BaseNode]) -> list[list[str]]:
    """Return the nodes whose outputs may be inputs of a node, the nearest first."""
    after = [name for name in _upstream_in_row(user) if name in nodes]
    if after:
        before_them = _reached(after, edges)
        return [after, [name for name in nodes if name in before_them and name not in after]]
    later = _reached([user.row.id], _reversed(edges))
    return [[name for name in nodes if name not in later]]


def _reached(start: Iterable[str], edges: Edges) -> set[str]:
    found, waiting = set(), list(start)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges.get(name, [])
    return found


def _reversed(edges: Edges) -> Edges:
    found: Edges = {}
    for name, upstream in edges.items():
        for each in upstream:
            found.setdefault(each, []).append(name)
    return found


def _producers(user: UserNode, node: BaseNode, nodes: Mapping[str, BaseNode]) -> list[str]:
    """Return the nodes that a component waits for: by inputs, by parameters, or in its code."""
    from tfx.dsl.placeholder.placeholder import Placeholder
    from tfx.types.channel_utils import get_dependent_channels

    channels = list(node.inputs.values())
    for value in node.exec_properties.values():
        if isinstance(value, Placeholder):
            channels += get_dependent_channels(value)
    taken = {name for each in channels for name in each.get_data_dependent_node_ids()}
    found = sorted(taken | {each.id for each in node.upstream_nodes})
    unknown = [name for name in found if name not in nodes]
    if unknown:
        raise user.error(
            "class",
            f"it waits for {unknown[0]}, which is not a node before it. Use outputs of "
            f"{', '.join(nodes)}.",
            user.row.path,
        )
    return found
