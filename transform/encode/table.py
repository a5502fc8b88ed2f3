"""Every encoder by its name under `encode:`."""

from __future__ import annotations

from collections.abc import Sequence

from transform.block import Block
from transform.columns.types import ResolvedGroup
from transform.encode import bucketize, date, hash, integer, multi_hot, one_hot, text, vocabulary
from transform.encode.encoder import Encoder, Inputs, Members

ENCODERS: dict[str, Encoder] = {
    module.ENCODER.name: module.ENCODER
    for module in (vocabulary, integer, bucketize, hash, one_hot, multi_hot, date, text)
}


def encoded(groups: Sequence[ResolvedGroup], inputs: Inputs) -> list[Block]:
    """Encode the columns of all groups with `encode`, those of one encoder together."""
    members: dict[str, list[ResolvedGroup]] = {}
    for each in groups:
        if each.group.encode is not None:
            members.setdefault(each.group.kind, []).append(each)
    return [
        block
        for name, mine in members.items()
        for block in ENCODERS[name].apply(inputs, Members(tuple(mine)))
    ]
