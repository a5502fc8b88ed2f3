"""`nodes:` of the YAML: TFX components of the user in the pipeline."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue, WithJsonSchema, model_validator

from pipeline.config.section import Section

_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
_OUTPUT = r"^[A-Za-z][A-Za-z0-9_-]*\.\w+$"


_Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class NodeConfig(Section):
    """A TFX component of yours as a node of the pipeline."""

    path: str = Field(
        examples=["my_package.RowCounter"],
        alias="class",
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$",
        description=(
            "Dotted path of a TFX component class, or of a function `(context) -> component`: "
            "`my_package.RowCounter`."
        ),
    )
    name: str | None = Field(
        examples=["RowCounter"],
        default=None,
        pattern=_NAME,
        description="The node's id; default: the last part of `class`.",
    )
    after: _Names = Field(
        default=(), description="Nodes to run before this node: a name, or a list of names."
    )
    before: _Names = Field(
        default=(), description="Nodes to run after this node: a name, or a list of names."
    )
    inputs: dict[str, Annotated[str, Field(pattern=_OUTPUT)]] = Field(
        examples=[{"examples": "Transform.transformed_examples"}],
        default={},
        description=(
            "Input of the component -> output of a node: "
            "`examples: Transform.transformed_examples`. Required inputs that are not set are "
            "matched by artifact type and name with the outputs of the nodes in `after`, then of "
            "the nodes before these."
        ),
    )
    parameters: dict[str, JsonValue] = Field(
        default={}, description="Other arguments of the component (execution properties)."
    )

    @model_validator(mode="before")
    @classmethod
    def _is_mapping(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(f"is not a mapping. Write `class: {value}`")
        return value

    @model_validator(mode="after")
    def _has_an_id(self) -> NodeConfig:
        if not re.match(_NAME, self.id):
            raise ValueError(
                f"name: add one, such as RowCounter, because {self.id} is not a valid id (at most "
                "63 letters, digits, - and _, with a letter first)"
            )
        return self

    @property
    def id(self) -> str:
        """The node's name in the graph."""
        return self.name or self.path.rpartition(".")[2]


def _is_list(value: object) -> object:
    if isinstance(value, dict):
        raise ValueError("is a list. Begin each node with `- class:`")
    return value


Nodes = Annotated[tuple[NodeConfig, ...], BeforeValidator(_is_list)]
"""The user's nodes of a pipeline."""
