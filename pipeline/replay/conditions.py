"""Evaluate the conditions of a compiled pipeline: the part of CEL that TFX and KFP compile to.

CEL is the Common Expression Language. A task's `triggerPolicy.condition` is a CEL expression of the
task's inputs, such as `inputs.artifacts['model'].artifacts[0].metadata['blessed'] == 1.0`.
As in the platforms' CEL, comparing values of different types is an error rather than false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[<>!()\[\].+-]))"
)
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_WORDS = {"true": True, "false": False, "null": None}
# The fields of a protobuf Value, used by the deprecated `inputs.parameters['x'].int_value`.
_VALUE_FIELDS = ("int_value", "double_value", "string_value", "number_value", "bool_value")


class ConditionError(ValueError):
    """The condition has an unknown form, or does not fit the values."""


Evaluate = Callable[[Mapping[str, Any]], Any]


class Condition(NamedTuple):
    """A parsed condition.

    Attributes:
        text: The source text.
        evaluate: Returns its value for the task's inputs.
    """

    text: str
    evaluate: Evaluate

    def holds(self, executor_input: Mapping[str, Any]) -> bool:
        """Return whether the task should run.

        Args:
            executor_input: ExecutorInput as JSON; the condition refers to its `inputs`.

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
    reader = _Reader(text)
    evaluate = reader.either()
    if reader.next is not None:
        raise reader.unknown()
    return Condition(text, evaluate)


class _Reader:
    """A recursive-descent parser; each method reads operators that bind as tightly as its name."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, place = text, [], 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if not found:
                raise ConditionError(f"the condition {text!r} has {text[place:]!r}: unknown here.")
            kind = found.lastgroup or ""
            self._tokens.append((kind, found[kind]))
            place = found.end()
        self._tokens.reverse()

    @property
    def next(self) -> tuple[str, str] | None:
        return self._tokens[-1] if self._tokens else None

    def either(self) -> Evaluate:
        sides = [self.both()]
        while self._took("||"):
            sides.append(self.both())
        return sides[0] if len(sides) == 1 else lambda i: any(self._truth(s(i)) for s in sides)

    def both(self) -> Evaluate:
        sides = [self.comparison()]
        while self._took("&&"):
            sides.append(self.comparison())
        return sides[0] if len(sides) == 1 else lambda i: all(self._truth(s(i)) for s in sides)

    def comparison(self) -> Evaluate:
        left = self.joined()
        for sign, compare in _COMPARISONS.items():
            if self._took(sign):
                right = self.joined()
                return lambda i: compare(*self._alike(left(i), right(i)))
        return left

    def joined(self) -> Evaluate:
        left = self.negated()
        while self._took("+"):
            left = self._plus(left, self.negated())
        return left

    def negated(self) -> Evaluate:
        if self._took("!"):
            inner = self.negated()
            return lambda i: not self._truth(inner(i))
        if self._took("-"):
            inner = self.negated()
            return lambda i: -inner(i)
        return self.value()

    def value(self) -> Evaluate:
        if self._took("("):
            inner = self.either()
            self._expect(")")
            return inner
        kind, word = self._take()
        if kind == "number":
            number = float(word)
            return lambda i: number
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", word[1:-1])
            return lambda i: text
        if word in _WORDS:
            return lambda i: _WORDS[word]
        if word in ("int", "double") and self._took("("):
            inner = self.either()
            self._expect(")")
            return lambda i: self._number(inner(i), whole=word == "int")
        if word == "inputs":
            return self._path()
        raise ConditionError(f"the condition {self._text!r} has {word!r}: unknown here.")

    def _path(self) -> Evaluate:
        steps: list[str | int] = ["inputs"]
        while True:
            if self._took("."):
                steps.append(self._take()[1])
            elif self._took("["):
                kind, word = self._take()
                steps.append(int(word) if kind == "number" else word[1:-1])
                self._expect("]")
            else:
                return lambda i: self._found(steps, i)

    def _found(self, steps: list[str | int], node: Any) -> Any:
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
                    f"the condition {self._text!r} names {step!r}, which is not there: there are "
                    f"{there or 'none'}."
                ) from None
        # JSON does not distinguish 1 and 1.0, and the platforms' CEL reads both as doubles.
        return float(node) if isinstance(node, int) and not isinstance(node, bool) else node

    def _plus(self, left: Evaluate, right: Evaluate) -> Evaluate:
        return lambda i: operator.add(*self._alike(left(i), right(i)))

    def _alike(self, left: Any, right: Any) -> tuple[Any, Any]:
        if type(left) is not type(right):
            raise ConditionError(
                f"the condition {self._text!r} puts {left!r} beside {right!r}, of another type, "
                "which is an error on the platform, too."
            )
        return left, right

    def _truth(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ConditionError(f"the condition {self._text!r} takes {value!r} for true or false.")
        return value

    def _number(self, value: Any, *, whole: bool) -> float:
        try:
            return float(int(float(value))) if whole else float(value)
        except (TypeError, ValueError):
            raise ConditionError(
                f"the condition {self._text!r} takes {value!r} for a number."
            ) from None

    def _took(self, sign: str) -> bool:
        if self.next != ("sign", sign):
            return False
        self._tokens.pop()
        return True

    def _take(self) -> tuple[str, str]:
        if not self._tokens:
            raise ConditionError(f"the condition {self._text!r} ends too early.")
        return self._tokens.pop()

    def _expect(self, sign: str) -> None:
        if not self._took(sign):
            raise self.unknown()

    def unknown(self) -> ConditionError:
        what = self.next[1] if self.next else "an end"
        return ConditionError(
            f"the condition {self._text!r} has {what!r} where it is unknown here."
        )
