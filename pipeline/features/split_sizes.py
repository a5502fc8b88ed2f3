"""The number of rows for training and evaluation in `init`, and tables that are too small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.common.errors import ConfigError
from pipeline.config.evaluation import FEW_JUDGED
from shared_core.run_warning import RunWarning

LEAST_ROWS = 10
FEW_ROWS = 200  # with fewer, split shares are exact: hash-based shares vary too much
_LARGE_TABLE = 150  # rows: from here on, a fifth of them is enough for evaluation
_BY_HAND = "or write the YAML by hand, with files for evaluation in data.eval_path"


@dataclass(frozen=True)
class SplitSizes:
    """Rows of each split: the exact number in small tables, else the expected number.

    Attributes:
        train: Rows of the train split.
        eval: Rows of the eval split.
        eval_percent: Share of rows that is held out, in percent.
    """

    train: int
    eval: int
    eval_percent: int

    @property
    def warnings(self) -> list[RunWarning]:
        """A warning if the model is evaluated on few rows; the run counts them again."""
        if self.eval >= FEW_JUDGED:
            return []
        rows = "1 row" if self.eval == 1 else f"{self.eval} rows"
        return [
            RunWarning(
                what=f"the model is evaluated on only {rows}, so its metrics and its blessing are "
                "unreliable",
                fix="Add rows, or increase data.eval_percent",
                number=self.eval,
            )
        ]


def eval_percent(rows: int) -> int:
    """Return the share of rows to hold out, in percent."""
    return 20 if rows >= _LARGE_TABLE else 30


def split_sizes(groups: Sequence[int], *, label: str, kind: str, path: str) -> SplitSizes:
    """Return the number of rows in the splits.

    Args:
        groups: Labeled rows of each class if rows are split by class, else of the table.
        label: The column to predict.
        kind: Kind of the label.
        path: Path of the data, for messages.

    Raises:
        ConfigError: There are too few rows to train on some and evaluate on others.
    """
    rows = sum(groups)
    if rows < LEAST_ROWS:
        raise ConfigError(
            f"--data={path}: {rows} rows with a value of {label!r} are too few for training and "
            f"evaluation. Use at least {LEAST_ROWS}, {_BY_HAND}."
        )
    if kind == "binary" and min(groups) < 2:
        raise ConfigError(
            f"--data={path}: one of the two values of {label!r} is in only 1 row, which cannot be "
            f"used for both training and evaluation. Add rows with it, {_BY_HAND}."
        )
    percent = eval_percent(rows)
    train = sum(max(round((100 - percent) / 100 * group), 1) for group in groups)
    if train == rows:
        raise ConfigError(
            f"--data={path}: the {rows} rows have {len(groups)} different values of {label!r}, too "
            f"few rows of each to evaluate a model. Add rows, {_BY_HAND}."
        )
    return SplitSizes(train, rows - train, percent)
