"""`nodes:` of the YAML: TFX components of the user in the pipeline."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)

_DOTTED = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"
_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
_OUTPUT = r"^[A-Za-z][A-Za-z0-9_-]*\.\w+$"


def _dotted(path: str) -> str:
    if not re.match(_DOTTED, path):
        raise ValueError("use a dotted path of a class or function: my_package.RowCounter")
    return path


def _named(name: str) -> str:
    if not re.match(_NAME, name):
        raise ValueError("use letters, digits, - and _, a letter first, 63 at most: RowCounter")
    return name


def _output(text: str) -> str:
    if not re.match(_OUTPUT, text):
        raise ValueError("use Node.output: Transform.transformed_examples")
    return text


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


_Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class NodeConfig(BaseModel):
    """Your own TFX component."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, AfterValidator(_dotted)] = Field(
        alias="class",
        json_schema_extra={"pattern": _DOTTED},
        description=(
            "Dotted path of a TFX component class, or of a function `(context) -> component`: "
            "`my_package.RowCounter`."
        ),
    )
    name: Annotated[str, AfterValidator(_named)] | None = Field(
        default=None,
        description="The node's id; null: the last part of `class`.",
    )
    after: _Names = Field(
        default=(), description="Nodes that it runs after: a name, or a list of names."
    )
    before: _Names = Field(
        default=(), description="Nodes that wait for it: a name, or a list of names."
    )
    inputs: dict[str, Annotated[str, AfterValidator(_output)]] = Field(
        default={},
        description=(
            "The component's input -> a node's output: `examples: Transform.transformed_examples`. "
            "Required inputs that are left out are found by their artifact type and name among "
            "the outputs of the nodes of `after`, then of those before these."
        ),
    )
    parameters: dict[str, JsonValue] = Field(
        default={}, description="The component's other arguments: its execution properties."
    )

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"is no mapping. Write `class: {value}`")
        return value

    @model_validator(mode="after")
    def _has_an_id(self) -> NodeConfig:
        if not re.match(_NAME, self.id):
            raise ValueError(
                f"name: add one, such as RowCounter, as {self.id} is no id of a node (letters, "
                "digits, - and _, a letter first, 63 at most)"
            )
        return self

    @property
    def id(self) -> str:
        """The node's name in the graph."""
        return self.name or self.path.rpartition(".")[2]


def _is_list(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError("is a list. Begin each node with `- class:`")
    return value


Nodes = Annotated[tuple[NodeConfig, ...], BeforeValidator(_is_list)]
"""The nodes of a pipeline beside ours."""
