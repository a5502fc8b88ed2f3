"""Add the nodes of the YAML's `nodes:` to a graph: checks, order, inputs and dependencies."""

from __future__ import annotations

import graphlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pipeline.common.errors import ConfigError
from pipeline.common.fingerprint import fingerprint
from pipeline.common.json_types import JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.config.nodes import NodeConfig
from pipeline.graph.nodes import NODES, GraphContext
from shared_core.nearest import nearest
from trainer_module.common.user_values import import_dotted

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode
    from tfx.types.artifact import Artifact
    from tfx.types.channel import BaseChannel

_T = TypeVar("_T")

_CODE = "code_fingerprint"
"""Execution property that makes caches see a change of the user's code."""


@dataclass(frozen=True)
class NodeContext:
    """The argument of a user's function `(context) -> component`: its row of `nodes:`.

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
        outputs = _outputs(self.nodes)
        if name not in outputs:
            raise LookupError(f"no such output before this node: {nearest(name, outputs)}")
        return outputs[name]


class _UserNode(NamedTuple):
    """A row of `nodes:`, with its index."""

    index: int
    row: NodeConfig
    config: PipelineConfig

    def error(self, field: str, text: object, value: object = None) -> ConfigError:
        """Return an error about a field (`after`, `parameters.limit`), with its line."""
        loc = ("nodes", self.index, *field.split("."))
        shown = "" if value is None else f"={value}"
        place = f"nodes.{self.index}.{field}{shown}"
        return ConfigError(f"{self.config.origin.prefix(loc)}{place}: {text}")

    @property
    def upstream(self) -> list[str]:
        """The nodes that the row names as before it."""
        producers = [output.partition(".")[0] for output in self.row.inputs.values()]
        return list(dict.fromkeys([*self.row.after, *producers]))


def import_callable(dotted: str, field: str) -> Any:
    """Return the class or function that a dotted path of the YAML names, or a ConfigError."""
    try:
        target = import_dotted(dotted, field=field)
    except (Exception, SystemExit) as error:  # whatever the user's module raises at its import
        text = str(error)
        if not text.startswith(f"{field}="):
            text = f"{field}={dotted}: importing it failed: {type(error).__name__}: {text}."
        raise ConfigError(text) from None
    if not callable(target):
        raise ConfigError(
            f"{field}={dotted}: a {type(target).__name__}, which cannot be called; name a class or "
            "a function."
        )
    return target


def add_user_nodes(context: GraphContext) -> None:
    """Build the nodes of `nodes:` and add them to a graph with all built-in nodes, in place.

    A ConfigError: a row is wrong; the message has its line, value and fix.
    """
    users = {
        row.id: _UserNode(i, row, context.config) for i, row in enumerate(context.config.nodes)
    }
    if problems := list(_wrong_names(context, users)):
        raise ConfigError("\n".join(problems))
    edges = {
        name: [upstream.id for upstream in node.upstream_nodes]
        for name, node in context.nodes.items()
    }
    edges |= {name: user.upstream for name, user in users.items()}
    for name, user in users.items():
        for later in user.row.before:
            edges[later].append(name)
    for name in _in_order(edges, users):
        if name in users:
            user = users[name]
            downstream = {name}
            for other in _in_order(edges, users):
                if downstream & {*edges[other]}:
                    downstream.add(other)
            before = {n: node for n, node in context.nodes.items() if n not in downstream}
            node = _make_component(user, context.nodes, before)
            edges[name] += _producers(user, node, context.nodes)
            _in_order(edges, users)
            node.add_upstream_nodes([context.nodes[each] for each in user.row.after])
            context.nodes[name] = node
    for name, user in users.items():
        for later in user.row.before:
            context.nodes[later].add_upstream_node(context.nodes[name])


def _wrong_names(context: GraphContext, users: Mapping[str, _UserNode]) -> Iterator[str]:
    """Yield a message for each id that is taken and each node that does not exist."""
    taken = {name.lower(): "a built-in node" for name in NODES}
    taken[context.config.name] = "the pipeline's name"
    known = [*context.nodes, *users]
    for i, row in enumerate(context.config.nodes):
        user = _UserNode(i, row, context.config)
        if row.id.lower() in taken:
            text = f"{row.id} is {taken[row.id.lower()]} already. Add name: {row.id}2."
            yield str(user.error("name" if row.name else "class", text, row.name or row.path))
        taken.setdefault(row.id.lower(), f"the name of nodes.{i}")
        named = [("after", name) for name in row.after] + [("before", n) for n in row.before]
        named += [(f"inputs.{key}", each.partition(".")[0]) for key, each in row.inputs.items()]
        for field, name in named:
            if name not in known:
                section = NODES[name].section if name in NODES else None
                why = f" in this pipeline (see `{section}:`)" if section else ""
                text = f"no node has this name{why}; {nearest(name, known)}"
                yield str(user.error(field, text, name))


def _in_order(edges: Mapping[str, list[str]], users: Mapping[str, _UserNode]) -> list[str]:
    """Return the nodes, each after those that it runs after; a ConfigError for a circle."""
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


def _producers(user: _UserNode, node: BaseNode, nodes: Mapping[str, BaseNode]) -> list[str]:
    """Return the nodes that a component waits for: by inputs, by parameters, or in its code."""
    from tfx.dsl.placeholder.placeholder import Placeholder
    from tfx.types.channel_utils import get_dependent_channels

    channels = list(node.inputs.values())
    for value in node.exec_properties.values():
        if isinstance(value, Placeholder):
            channels += get_dependent_channels(value)
    ids = {name for each in channels for name in each.get_data_dependent_node_ids()}
    producers = sorted(ids | {each.id for each in node.upstream_nodes})
    if unknown := [name for name in producers if name not in nodes]:
        text = f"it waits for {unknown[0]}, which is no node before it. Use outputs of "
        raise user.error("class", f"{text}{', '.join(nodes)}.", user.row.path)
    return producers


def _make_component(
    user: _UserNode, nodes: Mapping[str, BaseNode], before: Mapping[str, BaseNode]
) -> BaseNode:
    """Return the component of a row; `before` are the built `nodes` that do not wait for it."""
    from tfx.dsl.components.base.base_component import BaseComponent
    from tfx.dsl.components.base.base_node import BaseNode

    row, outputs = user.row, _outputs(nodes)
    try:
        target = import_callable(row.path, f"nodes.{user.index}.class")
    except ConfigError as error:
        prefix = user.config.origin.prefix(("nodes", user.index, "class"))
        raise ConfigError(f"{prefix}{error}") from None
    for key, name in row.inputs.items():
        if name not in outputs:
            raise user.error(f"inputs.{key}", f"no such output; {nearest(name, outputs)}", name)
    inputs = {key: outputs[name] for key, name in row.inputs.items()}
    if inspect.isclass(target) and issubclass(target, BaseComponent):
        arguments = _arguments(user, target, inputs, before)
        component = _call(user, lambda: target(**arguments))
    else:
        context = NodeContext(user.config, inputs, row.parameters, dict(nodes))
        component = None if inspect.isclass(target) else _call(user, lambda: target(context))
        if not isinstance(component, BaseNode) or component in nodes.values():
            raise user.error(
                "class",
                f"{'it' if inspect.isclass(target) else f'it returns {component!r}, which'} is no "
                "new TFX component. Name a class that derives from BaseComponent, a function with "
                "TFX's decorator @component, or a function (context) -> component.",
                row.path,
            )
    _add_fingerprint(user, component)
    return component.with_id(row.id)


def _arguments(
    user: _UserNode,
    target: Any,
    inputs: Mapping[str, BaseChannel],
    before: Mapping[str, BaseNode],
) -> dict[str, Any]:
    """Return the arguments of a component class: inputs, those that are matched, parameters."""
    signature = inspect.signature(target).parameters
    others = any(each.kind is each.VAR_KEYWORD for each in signature.values())
    declared, settings = target.SPEC_CLASS.INPUTS or {}, target.SPEC_CLASS.PARAMETERS or {}
    names = {*signature, *((*declared, *settings) if others else ())}
    row = user.row
    for field, keys, known in (
        ("inputs", row.inputs, names & {*declared} or names),
        ("parameters", row.parameters, names - {*declared, _CODE}),
    ):
        for key in keys:
            if key not in known:
                text = f"{row.path} has no such {field[:-1]}; {nearest(key, known)}"
                hint = f". It is an input: write inputs: {{{key}: ...}}" if key in declared else ""
                raise user.error(f"{field}.{key}", text + hint)
    arguments: dict[str, Any] = dict(inputs)
    for key, channel in declared.items():
        if key in inputs and not _fits(inputs[key], channel.type):
            text = f"takes {channel.type.TYPE_NAME}, and this is {inputs[key].type.TYPE_NAME}."
            raise user.error(f"inputs.{key}", text, row.inputs[key])
        if key not in inputs and key in names and not channel.optional:
            arguments[key] = _matching_output(user, key, channel.type, before)
    for key, value in row.parameters.items():
        # TFX takes no int where a float is declared.
        is_float = key in settings and settings[key].type is float
        arguments[key] = float(value) if is_float and type(value) is int else value
    return arguments


def _matching_output(
    user: _UserNode, key: str, kind: type[Artifact], before: Mapping[str, BaseNode]
) -> BaseChannel:
    """Return the output of an input's type: of the nodes that the row names, or else of others.

    Of several, it is the one with the input's name.
    """
    near = {name: before[name] for name in user.upstream if name in before}
    names: list[str] = []
    for nodes in (near, before):
        outputs = {name: each for name, each in _outputs(nodes).items() if _fits(each, kind)}
        same = [name for name in outputs if name.endswith(f".{key}")]
        for names in (list(outputs), same):
            if len(names) == 1:
                return outputs[names[0]]
        if outputs:
            names = list(outputs)
            break
    what = f"{', '.join(names)} are all" if names else "no output before this node is"
    fix = f"Name one: inputs: {{{key}: {names[0]}}}" if names else "Add a node that has one"
    raise user.error(
        "inputs", f"input {key!r} of {user.row.path}: {what} of its type {kind.TYPE_NAME}. {fix}."
    )


def _outputs(nodes: Mapping[str, BaseNode]) -> dict[str, BaseChannel]:
    """Return `Node.output` -> channel."""
    return {f"{n}.{key}": each for n, node in nodes.items() for key, each in node.outputs.items()}


def _fits(channel: BaseChannel, kind: type[Artifact]) -> bool:
    return issubclass(channel.type, kind) or channel.type.TYPE_NAME == kind.TYPE_NAME


def _call(user: _UserNode, make: Callable[[], _T]) -> _T:
    try:
        return make()
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        where = "parameters" if user.row.parameters else "class"
        reason = f"{type(error).__name__}: {error}"
        raise user.error(where, f"{user.row.path} cannot be built: {reason}") from error


def _add_fingerprint(user: _UserNode, component: BaseNode) -> None:
    """Make a change of the code a change of the node, for every cache."""
    spec = getattr(component, "spec", None)
    if spec is None:  # TFX's own Resolver and Importer, which run no code of the user's
        return
    executor = getattr(component.executor_spec, "executor_class", None)
    modules = {type(component).__module__, getattr(executor, "__module__", None)} - {None}
    # A class that TFX makes of a function is of a module of TFX, the function of the user's.
    modules = {module for module in modules if module.partition(".")[0] != "tfx"}
    functions = {user.row.path, *(f"{module}.any" for module in modules)}
    own = {each.partition(".")[0] for each in functions}
    ours = {"pipeline", "components", "transform", "trainer_module"}
    spec.exec_properties[_CODE] = fingerprint((), functions, without=sorted(ours - own))
