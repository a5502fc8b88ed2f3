"""Finds the outputs that a component's required inputs take, by their artifact types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx.types.channel import BaseChannel


class NoMatch(Exception):
    """No output, or more than one, fits an input; the text names the candidates."""


def match_input(
    key: str,
    wanted: Any,
    groups: Sequence[Mapping[str, BaseChannel]],
    everywhere: Mapping[str, BaseChannel],
) -> str:
    """Return the output (`Node.output`) that an input takes.

    The first group with an output of the input's type decides. If it has several, the one with the
    input's own name is taken.

    Args:
        key: the input's name.
        wanted: the input's artifact type.
        groups: outputs by `Node.output`, the nearest nodes first.
        everywhere: all outputs, to name candidates in a message.

    Raises:
        NoMatch: nothing fits, or several do.
    """
    for outputs in groups:
        found = [name for name, channel in outputs.items() if fits(channel, wanted)]
        same_name = [name for name in found if name.rpartition(".")[2] == key]
        if len(found) == 1 or len(same_name) == 1:
            return (same_name or found)[0]
        if found:
            raise NoMatch(
                f"{', '.join(found)} are all of its type {wanted.TYPE_NAME}. Name one of them: "
                f"inputs: {{{key}: {found[0]}}}."
            )
    others = [name for name, channel in everywhere.items() if fits(channel, wanted)]
    advice = (
        f"Name one of {', '.join(others)}: inputs: {{{key}: {others[0]}}}."
        if others
        else "No node of the pipeline has such an output; add one that does."
    )
    raise NoMatch(f"no output before this node is of its type {wanted.TYPE_NAME}. {advice}")


def fits(channel: BaseChannel, wanted: Any) -> bool:
    """Return whether an input of a type takes the channel's artifacts."""
    return issubclass(channel.type, wanted) or channel.type.TYPE_NAME == wanted.TYPE_NAME
