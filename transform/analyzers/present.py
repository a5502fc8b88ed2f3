"""How many rows of the analysis data have a value, of each column that no scaler counts.

No output needs these numbers. They are kept in the transform graph for whoever asks what a run did
(chains.py), and cost one sum of a vector per batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tensorflow as tf
import tensorflow_transform as tft

from transform.analyzers.fitted import keep
from transform.block import Block

PRESENT = "present"


def with_counts(blocks: Sequence[Block], counted: Collection[str]) -> list[Block]:
    """Return the blocks, with the counts of their sources kept in the graph.

    Args:
        blocks: of all output columns.
        counted: sources that need none.
    """
    first: dict[str, tuple[int, int]] = {}  # source -> block, and place in it
    for at, block in enumerate(blocks):
        for place, source in enumerate(block.sources):
            if source not in counted:
                first.setdefault(source, (at, place))
    blocks = list(blocks)
    if not first:
        return blocks
    parts, names = [], []
    for at in dict.fromkeys(at for at, _ in first.values()):
        mine = {source: place for source, (of, place) in first.items() if of == at}
        parts.append(tf.gather(blocks[at].missing, list(mine.values()), axis=1))
        names += mine
    missing = parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)
    present = tf.cast(tf.logical_not(missing), tf.int64)
    kept = keep(tft.sum(present, reduce_instance_dims=False), PRESENT, names)
    # What no output depends on is not saved.
    at, _ = next(iter(first.values()))
    with tf.control_dependencies([kept]):
        blocks[at] = blocks[at]._replace(values=tf.identity(blocks[at].values))
    return blocks
