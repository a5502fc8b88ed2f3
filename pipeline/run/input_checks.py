"""Find values of a batch that the model does not know: unseen categories and unreadable dates.

The transformed features of the exported model show them: see `trainer_module.tfx.export`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.common.json_types import JsonValue

if TYPE_CHECKING:
    import pyarrow as pa

_FILE = "assets.extra/input_checks.json"


@dataclass
class UnseenCategories:
    """The number of rows with an unseen category by column, and the first such value."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, column: str, rows: np.ndarray, batch: pa.RecordBatch) -> None:
        """Count the values of a column in some rows of a batch."""
        if not len(rows):
            return
        self.counts[column] = self.counts.get(column, 0) + len(rows)
        place = batch.schema.get_field_index(column)
        if column not in self.first and place >= 0:
            value = batch[place][int(rows[0])].as_py()
            self.first[column] = (
                value.decode(errors="replace") if isinstance(value, bytes) else value
            )

    def describe(self) -> str:
        """Return one line; "" if every category is known."""
        if not self.counts:
            return ""
        found = []
        for column, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0])):
            example = f", such as {self.first[column]!r}" if column in self.first else ""
            found.append(f"{column} ({count:,} {'row' if count == 1 else 'rows'}{example})")
        return f"Note: categories that are not in the training data: {'; '.join(found)}"


@dataclass(frozen=True)
class InputChecks:
    """The positions in the transformed features that show unknown values.

    Attributes:
        categories: For each, `column`, `output`, `position`, `ids`.
        dates: For each, `column`, `output`, `word`, `bit`.
    """

    categories: tuple[Mapping[str, JsonValue], ...] = ()
    dates: tuple[Mapping[str, JsonValue], ...] = ()

    @classmethod
    def read(cls, version: Path) -> InputChecks:
        """Read the checks of a SavedModel; empty if it was exported without them."""
        file = version / _FILE
        if not file.is_file():
            return cls()
        values = json.loads(file.read_text(encoding="utf-8"))
        return cls(tuple(values["categories"]), tuple(values["dates"]))

    def __bool__(self) -> bool:
        """Return whether there are any checks."""
        return bool(self.categories or self.dates)

    def unseen(self, transformed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return by column whether each row has a category that was not seen in training."""
        found: dict[str, np.ndarray] = {}
        for check in self.categories:
            values = transformed[check["output"]]
            ids = values.reshape(len(values), -1)[:, check["position"]]
            low, high = check["ids"]
            is_unseen = (ids < 0) | ((ids >= low) & (ids <= high))
            column = check["column"]
            found[column] = found[column] | is_unseen if column in found else is_unseen
        return found

    def missing_dates(self, transformed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return by column whether the model treats each row's date as missing."""
        return {
            check["column"]: (transformed[check["output"]][:, check["word"]] >> check["bit"]) & 1
            == 1
            for check in self.dates
        }
