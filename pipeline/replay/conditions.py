"""Evaluate the conditions of a compiled pipeline: the part of CEL that TFX and KFP compile to.

CEL is the Common Expression Language. A task's `triggerPolicy.condition` is a CEL expression of the
task's inputs, such as `inputs.artifacts['model'].artifacts[0].metadata['blessed'] == 1.0`.
As in the platforms' CEL, comparing values of different types is an error rather than false.

Python's parser reads it, because this part of CEL has Python's grammar with other signs: `&&` and
`||` become `and` and `or`, and `!` becomes `~`, which also binds more tightly than comparisons.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pipeline.common.json_types import JsonValue
from pipeline.targets.spec_types import ExecutorInput, JsonMapping

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
# Texts and != stay. What only Python knows becomes `?`, which neither language can read here.
_TOKEN = re.compile(rf"{_TEXT}|!=|&&|\|\||[!~#\r\n]|\b(?:and|or|not)\b")
_SIGNS = {"&&": " and ", "||": " or ", "!": "~", "!=": "!=", "\n": " ", "\r": " "}
_OPERATORS: dict[type, Callable[[JsonValue, JsonValue], JsonValue]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}
_WORDS = {"true": True, "false": False, "null": None}
# The fields of a protobuf Value, used by the deprecated `inputs.parameters['x'].int_value`.
_VALUE_FIELDS = ("int_value", "double_value", "string_value", "number_value", "bool_value")


class ConditionError(ValueError):
    """The condition has an unknown form, or does not fit the values."""


Evaluate = Callable[[JsonMapping], JsonValue]


class Condition(NamedTuple):
    """A parsed condition.

    Attributes:
        text: The source text.
        evaluate: Returns its value for the task's inputs.
    """

    text: str
    evaluate: Evaluate

    def holds(self, executor_input: ExecutorInput) -> bool:
        """Return whether the task should run.

        Raises:
            ConditionError: The condition refers to a missing value, or compares values of different
                types.
        """
        value = self.evaluate({"inputs": executor_input["inputs"]})
        if not isinstance(value, bool):
            raise ConditionError(
                f"the condition {self.text!r} is {value!r}, neither true nor false."
            )
        return value


def parsed(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionError: The condition has an unsupported part. Names that part.
    """

    def as_python(token: re.Match[str]) -> str:
        return token[0] if token[0][0] in "'\"" else _SIGNS.get(token[0], "?")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python only warns of an unknown escape, such as "\\d"
            tree = ast.parse(_TOKEN.sub(as_python, text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConditionError(f"the condition {text!r} has a form that is unknown here.") from None
    return Condition(text, _Compiler(text).compile(tree.body))


class _Compiler(NamedTuple):
    text: str

    def compile(self, node: ast.expr) -> Evaluate:
        """Return the function that evaluates a node."""
        match node:
            case ast.BoolOp(op=op, values=values):
                sides = [self.compile(each) for each in values]
                combine = all if isinstance(op, ast.And) else any
                return lambda i: combine(self._truth(side(i)) for side in sides)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                inner = self.compile(operand)
                return lambda i: not self._truth(inner(i))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.compile(operand)
                return lambda i: -self._double(inner(i))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._binary(_OPERATORS[type(op)], left, right)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._binary(operator.add, left, right)
            case ast.Call(func=ast.Name(id="int"), args=[argument], keywords=[]):
                inner = self.compile(argument)
                return lambda i: float(int(self._number(inner(i))))
            case ast.Call(func=ast.Name(id="double"), args=[argument], keywords=[]):
                inner = self.compile(argument)
                return lambda i: self._number(inner(i))
            case ast.Name(id=("true" | "false" | "null") as word):
                return lambda i: _WORDS[word]
            case ast.Constant(value=str() as text):
                return lambda i: text
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return lambda i: float(number)
            case ast.Attribute() | ast.Subscript():
                steps = self._steps(node)
                return lambda i: self._lookup(steps, i)
        raise self._unknown(node)

    def _binary(
        self, combine: Callable[[JsonValue, JsonValue], JsonValue], left: ast.expr, right: ast.expr
    ) -> Evaluate:
        first, second = self.compile(left), self.compile(right)

        def evaluate(inputs: JsonMapping) -> JsonValue:
            one, two = first(inputs), second(inputs)
            if type(one) is not type(two):
                raise ConditionError(
                    f"the condition {self.text!r} compares or adds {one!r} and {two!r}, which have "
                    "different types. The platform fails on this too."
                )
            return combine(one, two)

        return evaluate

    def _steps(self, node: ast.expr) -> list[str | int]:
        """Return the keys and indices of a path from `inputs`."""
        match node:
            case ast.Name(id="inputs"):
                return ["inputs"]
            case ast.Attribute(value=inner, attr=step):
                return [*self._steps(inner), step]
            case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as step)):
                return [*self._steps(inner), step]
        raise self._unknown(node)

    def _lookup(self, steps: list[str | int], node: JsonValue) -> JsonValue:
        if steps[1] in ("parameters", "parameter_values"):
            steps = ["inputs", "parameterValues", *steps[2:]]
            if steps[-1] in _VALUE_FIELDS:
                steps.pop()
        for step in steps:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                there = ", ".join(map(str, node)) if isinstance(node, Mapping) else repr(node)
                raise ConditionError(
                    f"the condition {self.text!r} names {step!r}, which is not there: there are "
                    f"{there or 'none'}."
                ) from None
        # JSON does not distinguish 1 and 1.0, and the platforms' CEL reads both as doubles.
        return float(node) if isinstance(node, int) and not isinstance(node, bool) else node

    def _truth(self, value: JsonValue) -> bool:
        if not isinstance(value, bool):
            raise ConditionError(f"the condition {self.text!r} uses {value!r} as true or false.")
        return value

    def _double(self, value: JsonValue) -> float:
        if not isinstance(value, float):  # - does not convert, unlike double()
            raise ConditionError(f"the condition {self.text!r} uses {value!r} as a number.")
        return value

    def _number(self, value: JsonValue) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ConditionError(
                f"the condition {self.text!r} uses {value!r} as a number."
            ) from None

    def _unknown(self, node: ast.expr) -> ConditionError:
        part = ast.unparse(node).replace("~", "!")
        return ConditionError(f"the condition {self.text!r} has {part!r}, which is unknown here.")
