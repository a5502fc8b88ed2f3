"""Create the TFX component that a row of `nodes:` describes."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pipeline.common.errors import ConfigError
from pipeline.common.fingerprint import fingerprint
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.config.config import PipelineConfig
from pipeline.config.nodes import NodeConfig
from pipeline.graph.dotted import import_dotted
from pipeline.graph.input_matching import NoMatch, fits, match_input
from pipeline.graph.node_context import NodeContext, missing_output, outputs_of

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode
    from tfx.types.channel import BaseChannel

T = TypeVar("T")
Target: TypeAlias = Any
"""A component class, or a user's function that returns a component."""

CODE = "code_fingerprint"
"""Execution property that makes caches see a change of the user's code."""

_OURS = ("pipeline", "components", "transform", "trainer_module")


class UserNode(NamedTuple):
    """A row of `nodes:`.

    Attributes:
        index: Index in `nodes`.
        row: The content of the row.
        config: The whole configuration.
    """

    index: int
    row: NodeConfig
    config: PipelineConfig

    def error(self, field: str, text: str, value: object = None) -> ConfigError:
        """Return an error about a field (`after`, `parameters.limit`), with its line."""
        loc = ("nodes", self.index, *field.split("."))
        shown = "" if value is None else f"={value}"
        place = f"nodes.{self.index}.{field}{shown}"
        return ConfigError(f"{self.config.origin.prefix(loc)}{place}: {text}")


def make_component(
    user: UserNode, nodes: Mapping[str, BaseNode], groups: Sequence[Iterable[str]]
) -> BaseNode:
    """Return the component of a row, not yet added to the graph.

    Args:
        user: The row.
        nodes: Id -> node, for the nodes that are built.
        groups: Ids of the nodes whose outputs may be inputs, the nearest first.

    Raises:
        ConfigError: The class does not exist or is not a component, or an input or parameter is
            wrong.
    """
    from tfx.dsl.components.base.base_component import BaseComponent
    from tfx.dsl.components.base.base_node import BaseNode

    row = user.row
    try:
        target = import_dotted(row.path, f"nodes.{user.index}.class")
    except ConfigError as error:
        prefix = user.config.origin.prefix(("nodes", user.index, "class"))
        raise ConfigError(f"{prefix}{error}") from None
    inputs = {key: _output(user, key, name, nodes) for key, name in row.inputs.items()}
    if inspect.isclass(target):
        if not issubclass(target, BaseComponent):
            raise user.error("class", _no_component(target), row.path)
        inputs |= _matched_inputs(user, target, nodes, groups)
        _check_arguments(user, target, inputs)
        arguments = {**inputs, **_as_declared(row.parameters, target)}
        component = _call(user, lambda: target(**arguments))
    else:
        context = NodeContext(user.config, inputs, row.parameters, dict(nodes))
        component = _call(user, lambda: target(context))
        if not isinstance(component, BaseNode):
            raise user.error("class", f"it returned {_no_component(component)}", row.path)
        if any(component is node for node in nodes.values()):
            raise user.error("class", "it returned a node of the pipeline; make one", row.path)
    _add_fingerprint(user, component)
    return component.with_id(row.id)


def _no_component(found: object) -> str:
    kind = "the class" if inspect.isclass(found) else f"a {type(found).__name__},"
    name = f" {found.__name__}, which is" if inspect.isclass(found) else ""
    return (
        f"{kind}{name} not a TFX component. Name a class that derives from BaseComponent, a "
        "function with TFX's decorator @component, or a function (context) -> component."
    )


def _output(user: UserNode, key: str, name: str, nodes: Mapping[str, BaseNode]) -> BaseChannel:
    known = outputs_of(nodes)
    if name not in known:
        raise user.error(f"inputs.{key}", missing_output(name, known), name)
    return known[name]


def _spec_part(target: Target, part: str) -> Mapping[str, JsonValue]:
    """Return INPUTS or PARAMETERS of a component class; nothing of a node without a spec."""
    return getattr(getattr(target, "SPEC_CLASS", None), part, None) or {}


def _arguments(target: Target) -> tuple[dict[str, bool], bool]:
    """Return the constructor's arguments -> whether they are required, and whether others go."""
    parameters = inspect.signature(target).parameters.values()
    named = {
        each.name: each.default is each.empty
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    return named, any(each.kind is each.VAR_KEYWORD for each in parameters)


def _matched_inputs(
    user: UserNode, target: Target, nodes: Mapping[str, BaseNode], groups: Sequence[Iterable[str]]
) -> dict[str, BaseChannel]:
    """Return the required inputs that the row does not name."""
    named, takes_others = _arguments(target)
    outputs = [outputs_of({name: nodes[name] for name in group}) for group in groups]
    everywhere = outputs_of(nodes)
    found = {}
    for key, wanted in _spec_part(target, "INPUTS").items():
        is_argument = takes_others or key in named
        if wanted.optional or key in user.row.inputs or not is_argument:
            continue
        try:
            found[key] = everywhere[match_input(key, wanted.type, outputs, everywhere)]
        except NoMatch as error:
            raise user.error("inputs", f"input {key!r} of {user.row.path}: {error}") from None
    return found


def _check_arguments(user: UserNode, target: Target, inputs: Mapping[str, BaseChannel]) -> None:
    named, takes_others = _arguments(target)
    declared = _spec_part(target, "INPUTS")
    settings = {key: not each.optional for key, each in _spec_part(target, "PARAMETERS").items()}
    outputs = _spec_part(target, "OUTPUTS")
    parameters = {key: required for key, required in named.items() if key not in declared}
    if takes_others:
        parameters = {**settings, **parameters}
    for key, channel in inputs.items():
        if key not in declared and key not in named:
            raise user.error(f"inputs.{key}", _unknown(key, "input", declared, user), None)
        if key in declared and not fits(channel, declared[key].type):
            known = f"{declared[key].type.TYPE_NAME}, and this is {channel.type.TYPE_NAME}"
            raise user.error(f"inputs.{key}", f"takes {known}.", user.row.inputs[key])
    for key in user.row.parameters:
        if key in inputs or key in declared:
            raise user.error(f"parameters.{key}", f"is an input. Write it below inputs: {key}")
        if key == CODE:
            raise user.error(f"parameters.{key}", "the pipeline sets it. Leave it out.")
        if key not in parameters:
            raise user.error(f"parameters.{key}", _unknown(key, "parameter", parameters, user))
    given = {*inputs, *user.row.parameters, *outputs}
    lacking = [key for key, required in parameters.items() if required and key not in given]
    if lacking:
        raise user.error(
            "parameters",
            f"{user.row.path} needs {', '.join(lacking)}. Add parameters: {{{lacking[0]}: ...}}.",
        )


def _unknown(key: str, what: str, known: Iterable[str], user: UserNode) -> str:
    known = list(known)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{user.row.path} has no {what} {key!r}.{hint} It has {', '.join(known) or 'none'}."


def _as_declared(parameters: Mapping[str, JsonValue], target: Target) -> JsonObject:
    """Return the parameters with `1` as `1.0` where a float is declared: TFX takes no int there."""
    floats = {k for k, each in _spec_part(target, "PARAMETERS").items() if each.type is float}
    return {
        key: float(value) if key in floats and type(value) is int else value
        for key, value in parameters.items()
    }


def _call(user: UserNode, make: Callable[[], T]) -> T:
    try:
        return make()
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        where = "parameters" if user.row.parameters else "class"
        reason = f"{type(error).__name__}: {error}"
        raise user.error(where, f"{user.row.path} cannot be built: {reason}") from error


def _add_fingerprint(user: UserNode, component: BaseNode) -> None:
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
    skipped = tuple(each for each in _OURS if each not in own)
    spec.exec_properties[CODE] = fingerprint((), functions, without=skipped)
