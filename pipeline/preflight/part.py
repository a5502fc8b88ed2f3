"""The rows of one path of the data, and the split to which ExampleGen will assign each of them.

Only where few rows decide, they are split here as ExampleGen splits them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.config.config import DataConfig
from pipeline.data.peek import DataPeek
from pipeline.data.samples import Sample, Values

if TYPE_CHECKING:
    import pyarrow as pa

    from components.arrow_example_gen.columns import Hole
    from components.arrow_example_gen.splitting import Splitting

_FEW_ROWS = 1_000
"""Maximum number of rows that are hashed to determine their split."""

_RANKED_ROWS = 20_000
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
        few = _FEW_ROWS if self.data.split.by == "content" else _RANKED_ROWS
        return self.whole and (self.data.split.by == "time" or self._sample.rows <= few)

    @property
    def splits(self) -> tuple[str, ...]:
        """The possible splits of its rows."""
        return tuple(self.data.shares) if self.split == "all" else (self.split,)

    def split_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the split of each row, given by its number; text `[rows]`.

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
            known[unknown] = self._by_hash(unknown)
        return names[known[rows]]

    @cached_property
    def _known_splits(self) -> np.ndarray:
        """Cached splits, int `[rows]`; -1: not yet computed.

        The time to hash a row grows with the number of columns, and each column needs its split.
        """
        return np.full(self._sample.rows, -1)

    def of_train(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each row, given by its number, is in the train split; bool `[rows]`."""
        return self.split_of(rows) == "train"

    def any_in_train(self, rows: np.ndarray) -> bool:
        """Return whether any of the rows is in the train split; assumes it if there are many."""
        if self.split != "all" or len(rows) > _FEW_ROWS:
            return self.split != "eval"
        blocks = (rows[start : start + 16] for start in range(0, len(rows), 16))
        return any(self.of_train(block).any() for block in blocks)

    def where(self, rows: np.ndarray) -> str:
        """Return the splits of the selected rows (bool `[all rows]`), for a message."""
        found = set(self.split_of(np.flatnonzero(rows)[:_FEW_ROWS]))
        return " and ".join(name for name in self.splits if name in found)

    @property
    def _shares(self) -> list[int]:
        return list(self.data.shares.values())

    @property
    def _has_exact_shares(self) -> bool:
        """Whether the table is so small that `by: row` gives exact shares."""
        from components.arrow_example_gen.splitting import EXACT

        return self.whole and self._sample.rows <= EXACT

    def _by_hash(self, rows: np.ndarray) -> np.ndarray:
        """Return splits by the hashes of rows, where these depend on no other row."""
        from components.arrow_example_gen.splitting import hash_cuts, splits_of

        found = np.zeros(len(rows), int)
        if self.column is not None:
            usable = self.values(self.column).present[rows]
            found[usable] = splits_of(self._read(rows[usable]), self._splitting, self._shares)
            return found
        cuts = {None: hash_cuts(self._shares)}
        return splits_of(self._read(rows), self._splitting, self._shares, cuts)

    @property
    def _splitting(self) -> Splitting:
        from components.arrow_example_gen.splitting import Splitting

        return Splitting(by=self.data.split.by, column=self.column)

    def _read(self, rows: np.ndarray) -> tuple[np.ndarray, pa.RecordBatch]:
        """Return rows, by number, as ExampleGen reads them; for `time` its column alone."""
        if self.data.split.by != "time":
            return self._sample.places(rows), self._sample.batch(rows)
        import pyarrow as pa

        assert self.column is not None
        chosen = np.zeros(self._sample.rows, bool)
        chosen[rows] = True
        values = self.values(self.column).first(chosen)
        lists = pa.LargeListArray.from_arrays(pa.array(np.arange(len(values) + 1)), values)
        return self._sample.places(rows), pa.RecordBatch.from_arrays([lists], [self.column])

    @cached_property
    def _ranked(self) -> np.ndarray:
        """The split of each row by its rank among others, int `[rows]`."""
        from components.arrow_example_gen.splitting import find_cuts, splits_of

        found = np.zeros(self._sample.rows, int)
        if not self.splits_known:
            return found
        rows = np.arange(self._sample.rows)
        if self.column is not None:
            rows = np.flatnonzero(self.values(self.column).present)
        read = self._read(rows)
        cuts = find_cuts([read], self._splitting, self._shares)
        found[rows] = splits_of(read, self._splitting, self._shares, cuts)
        return found
