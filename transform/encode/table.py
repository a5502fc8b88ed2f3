"""Every encoder by its name under `encode:`."""

from __future__ import annotations

from collections.abc import Sequence

from transform.block import Block
from transform.encode.date import DATE
from transform.encode.encoder import Encoder, Inputs, Members
from transform.encode.ids import BUCKETIZE, HASH, INTEGER, VOCABULARY
from transform.encode.indicators import MULTI_HOT, ONE_HOT
from transform.encode.text import TEXT
from transform.spec.group import ResolvedGroup

ENCODERS: dict[str, Encoder] = {
    encoder.name: encoder
    for encoder in (VOCABULARY, INTEGER, BUCKETIZE, HASH, ONE_HOT, MULTI_HOT, DATE, TEXT)
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
