"""The rows of one path of the data, and the split that ExampleGen will put each of them into.

Where few rows decide, they are hashed here as they will be there; nothing else is.
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
"""Rows that are hashed at most to know their split, one by one."""

RANKED_ROWS = 20_000
"""Rows that are hashed at most to know the split of one, where others decide on it."""


@dataclass(frozen=True)
class Part:
    """Rows of one path of the data.

    Attributes:
        split: the split that they are of, or "all": they are split as `data` says.
        column: the column that decides on it.
    """

    split: Literal["train", "eval", "all"]
    path: str
    seen: DataPeek
    data: DataConfig
    column: str | None = None

    def values(self, name: str) -> Values:
        """A column of the sample."""
        return self._sample.values(name)

    def exact(self, name: str) -> np.ndarray:
        """A float column of the sample before it is rounded to float32."""
        return self._sample.exact(name)

    def hole(self, name: str) -> Hole | None:
        """The first row, of all, with a list that tf.Example cannot hold as it is."""
        return self._sample.hole(name)

    @property
    def _sample(self) -> Sample:
        assert self.seen.sample is not None
        return self.seen.sample

    @property
    def whole(self) -> bool:
        """The sample is all there is."""
        return self.seen.complete and self._sample.rows == self.seen.rows

    @property
    def splits_known(self) -> bool:
        """All rows were read, and each row's split can be known in little time."""
        few = FEW_ROWS if self.data.split.by == "content" else RANKED_ROWS
        return self.whole and (self.data.split.by == "time" or self._sample.rows <= few)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that its rows may come into."""
        return tuple(self.data.shares) if self.split == "all" else (self.split,)

    def split_of(self, rows: np.ndarray) -> np.ndarray:
        """Texts: the split of each of the rows, which are given by their numbers.

        `_PartitionFn` of tfx.components.example_gen.base_example_gen_executor, for the buckets that
        `data_sources.example_gen` asks for, or `components.arrow_example_gen.splitting`. Of more
        rows than are ranked here, each is taken to be of the train split.
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
        """Int `[rows]`: the split of rows that were asked for; -1 of others.

        To encode a row takes time that grows with the number of columns, and each column asks.
        """
        return np.full(self._sample.rows, -1)

    def of_train(self, rows: np.ndarray) -> np.ndarray:
        """Bool: which of the rows, given by their numbers, come into the train split."""
        return self.split_of(rows) == "train"

    def any_in_train(self, rows: np.ndarray) -> bool:
        """Whether one of the rows comes into the train split; taken for granted of many."""
        if self.split != "all" or len(rows) > FEW_ROWS:
            return self.split != "eval"
        blocks = (rows[start : start + 16] for start in range(0, len(rows), 16))
        return any(self.of_train(block).any() for block in blocks)

    def where(self, rows: np.ndarray) -> str:
        """The splits that some of the rows (bool, of all) come into, for a message."""
        found = set(self.split_of(np.flatnonzero(rows)[:FEW_ROWS]))
        return " and ".join(name for name in self.splits if name in found)

    @property
    def _shares(self) -> list[int]:
        return list(self.data.shares.values())

    @property
    def _has_exact_shares(self) -> bool:
        """The table is so small that `by: row` sorts its rows."""
        from components.arrow_example_gen.splitting import EXACT

        return self.whole and self._sample.rows <= EXACT

    def _by_place(self, rows: np.ndarray) -> list[int]:
        from components.arrow_example_gen.splitting import hash_cuts

        cuts = hash_cuts(self._shares)
        return [bisect.bisect_left(cuts, hashed) for hashed in self._hashes(rows)]

    def _by_content(self, rows: np.ndarray) -> list[int]:
        """By a hash of the rows, or of their groups."""
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
        """Int `[rows]`: the split of each row, by its place among others."""
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
