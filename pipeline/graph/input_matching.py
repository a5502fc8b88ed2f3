"""Match a component's required inputs with outputs of the same artifact type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfx.types.artifact import Artifact
    from tfx.types.channel import BaseChannel


class NoMatch(Exception):
    """No output, or more than one, fits an input; the text names the candidates."""


def match_input(
    key: str,
    wanted: type[Artifact],
    groups: Sequence[Mapping[str, BaseChannel]],
    everywhere: Mapping[str, BaseChannel],
) -> str:
    """Return the output (`Node.output`) for an input.

    It is in the first group that has an output of the input's type. Of several, it is the one with
    the input's name.

    Args:
        key: Name of the input.
        wanted: Artifact type of the input.
        groups: Outputs by `Node.output`, the nearest nodes first.
        everywhere: All outputs, to name candidates in a message.

    Raises:
        NoMatch: No output fits, or several do.
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


def fits(channel: BaseChannel, wanted: type[Artifact]) -> bool:
    """Return whether an input of a type accepts the channel's artifacts."""
    return issubclass(channel.type, wanted) or channel.type.TYPE_NAME == wanted.TYPE_NAME
