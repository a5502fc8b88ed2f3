"""The rows of one path of the data, and the split to which ExampleGen will assign each of them.

Only where few rows decide, they are hashed here as ExampleGen hashes them.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pipeline.config.config import DataConfig
from pipeline.data.peek import DataPeek
from pipeline.data.samples import Sample, Values

if TYPE_CHECKING:
    from components.arrow_example_gen.parquet import Hole

FEW_ROWS = 1_000
"""Maximum number of rows that are hashed one by one to determine their split."""

RANKED_ROWS = 20_000
"""Maximum number of rows that are hashed if the split of a row depends on other rows."""


@dataclass(frozen=True)
class Part:
    """Rows of one path of the data.

    Attributes:
        split: The split of the rows, or "all": they are split as `data` says.
        path: The path, for messages.
        seen: The rows that were read.
        data: The section `data` of the configuration.
        column: The column that determines the split, or None.
    """

    split: Literal["train", "eval", "all"]
    path: str
    seen: DataPeek
    data: DataConfig
    column: str | None = None

    def values(self, name: str) -> Values:
        """Return a column of the sample."""
        return self._sample.values(name)

    def exact(self, name: str) -> np.ndarray:
        """Return a float column of the sample before it is rounded to float32."""
        return self._sample.exact(name)

    def hole(self, name: str) -> Hole | None:
        """Return the first row, of all rows, with a list that a tf.Example cannot represent."""
        return self._sample.hole(name)

    @property
    def _sample(self) -> Sample:
        assert self.seen.sample is not None
        return self.seen.sample

    @property
    def whole(self) -> bool:
        """Whether the sample has all rows."""
        return self.seen.complete and self._sample.rows == self.seen.rows

    @property
    def splits_known(self) -> bool:
        """Whether all rows were read, and the split of each can be computed quickly."""
        few = FEW_ROWS if self.data.split.by == "content" else RANKED_ROWS
        return self.whole and (self.data.split.by == "time" or self._sample.rows <= few)

    @property
    def splits(self) -> tuple[str, ...]:
        """The possible splits of its rows."""
        return tuple(self.data.shares) if self.split == "all" else (self.split,)

    def split_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the split of each row, given by its number; text `[rows]`.

        Computes the same as `_PartitionFn` of tfx.components.example_gen.base_example_gen_executor
        for the buckets of `data_sources.example_gen`, or `components.arrow_example_gen.splitting`.
        If there are more rows than are ranked here, assumes the train split for each.
        """
        names = np.asarray(self.splits)
        if len(names) == 1:
            return names[np.zeros(len(rows), int)]
        by = self.data.split.by
        if by in ("stratified", "time") or (by == "row" and self._has_exact_shares):
            return names[self._ranked[rows]]
        known = self._known_splits
        unknown = rows[known[rows] < 0]
        if len(unknown):
            known[unknown] = self._by_place(unknown) if by == "row" else self._by_content(unknown)
        return names[known[rows]]

    @cached_property
    def _known_splits(self) -> np.ndarray:
        """Cached splits, int `[rows]`; -1: not yet computed.

        The time to encode a row grows with the number of columns, and each column needs its split.
        """
        return np.full(self._sample.rows, -1)

    def of_train(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each row, given by its number, is in the train split; bool `[rows]`."""
        return self.split_of(rows) == "train"

    def any_in_train(self, rows: np.ndarray) -> bool:
        """Return whether any of the rows is in the train split; assumes it if there are many."""
        if self.split != "all" or len(rows) > FEW_ROWS:
            return self.split != "eval"
        blocks = (rows[start : start + 16] for start in range(0, len(rows), 16))
        return any(self.of_train(block).any() for block in blocks)

    def where(self, rows: np.ndarray) -> str:
        """Return the splits of the selected rows (bool `[all rows]`), for a message."""
        found = set(self.split_of(np.flatnonzero(rows)[:FEW_ROWS]))
        return " and ".join(name for name in self.splits if name in found)

    @property
    def _shares(self) -> list[int]:
        return list(self.data.shares.values())

    @property
    def _has_exact_shares(self) -> bool:
        """Whether the table is so small that `by: row` gives exact shares."""
        from components.arrow_example_gen.splitting import EXACT

        return self.whole and self._sample.rows <= EXACT

    def _by_place(self, rows: np.ndarray) -> list[int]:
        from components.arrow_example_gen.splitting import hash_cuts

        cuts = hash_cuts(self._shares)
        return [bisect.bisect_left(cuts, hashed) for hashed in self._hashes(rows)]

    def _by_content(self, rows: np.ndarray) -> list[int]:
        """Return splits by a hash of the rows, or of their groups."""
        keys = self._sample.examples(rows)
        if self.data.split.by == "group":
            import tensorflow as tf

            assert self.column is not None
            found = (tf.train.Example.FromString(each).features.feature for each in keys)
            keys = [each[self.column].SerializeToString(deterministic=True) for each in found]
        limits = list(accumulate(self._shares))
        hashes = (int(hashlib.sha256(key).hexdigest(), 16) % limits[-1] for key in keys)
        return [bisect.bisect(limits, hashed) for hashed in hashes]

    def _hashes(self, rows: np.ndarray) -> list[int]:
        from components.arrow_example_gen.splitting import hash_of

        examples = self._sample.examples(rows)
        places = self._sample.places(rows).tolist()
        return [hash_of(place, each) for place, each in zip(places, examples, strict=True)]

    @cached_property
    def _ranked(self) -> np.ndarray:
        """The split of each row by its rank among others, int `[rows]`."""
        rows = np.arange(self._sample.rows)
        stratified = self.data.split.by == "stratified"
        if not self.splits_known:
            return np.zeros(len(rows), int)
        from components.arrow_example_gen.splitting import cuts_of

        if self.data.split.by == "row":
            hashes = self._hashes(rows)
            cuts = cuts_of(sorted(hashes), self._shares)
            return np.asarray([bisect.bisect_left(cuts, each) for each in hashes])
        assert self.column is not None
        values = self.values(self.column)
        held: list[Any] = values.first(values.present).to_pylist()
        present = np.flatnonzero(values.present)
        ranks: list[Any] = self._hashes(present) if stratified else held
        groups: dict[Any, list[int]] = defaultdict(list)
        for i, value in enumerate(held):
            groups[value if stratified else None].append(i)
        found = np.zeros(len(rows), int)
        for members in groups.values():
            cuts = cuts_of(sorted(ranks[i] for i in members), self._shares)
            for i in members:
                found[present[i]] = bisect.bisect_left(cuts, ranks[i])
        return found
