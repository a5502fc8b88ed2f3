"""Check the values and the split of the rows, before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pipeline.common.errors import ConfigError
from pipeline.config.config import DataConfig, PipelineConfig
from pipeline.data.data_sources import split_column
from pipeline.data.peek import DataPeek
from pipeline.data.samples import Sample, Values
from shared_core.nearest import nearest, nearest_column

if TYPE_CHECKING:
    import pyarrow as pa

    from transform import Group, Label
    from transform.spec.group import ResolvedGroup

_MOST_CLASSES = 1_000
_SPLIT_CELLS = 200_000  # of a table whose rows are split here
_RARE_ROWS = 20  # of a class or a column that may all be in the eval split by chance
_MOST_RARE_ROWS = 20_000
_SHOWN_VALUES = 8


@dataclass(frozen=True)
class Part:
    """Rows of one path of the data; "all": they are split as `data` says, by a column or none.

    With `has_images`, a split that depends on the bytes of images is not known before the run.
    """

    split: Literal["train", "eval", "all"]
    path: str
    seen: DataPeek
    data: DataConfig
    column: str | None = None
    has_images: bool = False

    @property
    def sample(self) -> Sample:
        """The rows that were read."""
        assert self.seen.sample is not None
        return self.seen.sample

    def values(self, name: str) -> Values:
        """Return a column of the rows that were read."""
        return self.sample.values(name)

    @property
    def whole(self) -> bool:
        """Whether these are all rows."""
        return self.seen.complete and self.sample.rows == self.seen.rows

    @cached_property
    def splits(self) -> np.ndarray | None:
        """The name of each row's split; None if they are too many to be split here."""
        if self.split != "all":
            return np.full(self.sample.rows, self.split)
        if self._by_images:
            return None
        columns = 1 if self.data.split.by == "time" else len(self.sample.kinds)
        if not self.whole or columns * self.sample.rows > _SPLIT_CELLS:
            return None
        return self._split_of(np.arange(self.sample.rows))

    def in_train(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each of some rows is in the train split; True where that is unknown."""
        if self.splits is not None:
            return self.splits[rows] == "train"
        by_hash = self.data.split.by in ("content", "group") and not self._by_images
        if not by_hash or len(rows) > _MOST_RARE_ROWS:
            return np.ones(len(rows), bool)
        return self._split_of(rows) == "train"

    @property
    def _by_images(self) -> bool:
        return self.has_images and self.data.split.by not in ("group", "time")

    def _split_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the names of the splits into which ExampleGen puts rows, given by number."""
        from components.arrow_example_gen.splitting import Splitting, find_cuts, splits_of

        splitting = Splitting(by=self.data.split.by, column=self.column)
        sample, shares = self.sample, list(self.data.shares.values())
        if self.column is not None and splitting.by != "stratified":  # the others do not matter
            sample = replace(sample, kinds={self.column: sample.kinds[self.column]})
        read = sample.places(rows), sample.batch(rows)
        cuts: Any = find_cuts([read], splitting, shares)
        return np.asarray(list(self.data.shares))[splits_of(read, splitting, shares, cuts)]


def _check_split(config: PipelineConfig, part: Part) -> None:
    """Check the column by which rows are split, and that no split is empty."""
    if part.split != "all":
        return
    if part.data.split.by not in ("content", "row"):
        _check_column(config, part)
    if part.splits is None:
        return
    rows = part.seen.rows
    counts = Counter(part.splits.tolist())
    empty = [name for name in part.data.shares if not counts[name]]
    if empty:
        shares = ", ".join(f"{name} {counts[name]:,}" for name in part.data.shares)
        raise ConfigError(
            f"data.path={part.path}: none of its {rows:,} rows comes into the {empty[0]} split "
            f"(data.split.by={part.data.split.by}; rows: {shares}). Add rows, change "
            "data.eval_percent, data.test_percent or data.split, or name files for evaluation in "
            "data.eval_path."
        )


def _check_column(config: PipelineConfig, part: Part) -> None:
    by, name = part.data.split.by, part.column
    if name is None:
        return
    field = "data.split.column" if part.data.split.column else "data.split.by=stratified: the label"
    if name not in part.seen.columns:
        but = () if by == "stratified" else (config.label.column,)
        raise ConfigError(
            f"{field} {name!r} is not a column of {part.path}, whose rows are split before "
            f"features.derive sees them; {nearest_column(name, part.seen.columns, but=but)}"
        )
    what = f"{field}: column {name!r} of {part.path}"
    kind = part.seen.columns[name]
    is_label = name == config.label.column
    if by == "stratified" and (kind == "float" or (is_label and config.label.kind == "regression")):
        raise ConfigError(
            f"{what} is a number on a scale, and by: stratified gives each split its share of each "
            "class. Use by: row, or name a column of classes."
        )
    if by == "group" and kind not in ("int", "string"):
        raise ConfigError(
            f"{what} is of type {kind}, and by: group takes whole numbers or texts. Name another."
        )
    values = part.values(name)
    missing = int((~values.present).sum())
    if missing:
        raise ConfigError(
            f"{what} is missing in {missing:,} of {len(values.present):,} rows read, so that "
            "their split is unknown. Give these rows a value, leave them out of the data, or split "
            "by another column."
        )
    held = values.first(values.present).to_pylist()
    if by == "time" and kind == "string":
        from components.arrow_example_gen.splitting import check_forms, instants

        try:
            check_forms(instants(values.first(values.present)).forms)
        except ValueError as error:
            raise ConfigError(f"{what} {error}") from None
    if by == "stratified" and len(set(held)) > _MOST_CLASSES:
        raise ConfigError(
            f"{what} has {len(set(held)):,} different values in {len(held):,} rows, too many for "
            "classes. Use by: row, or name another column."
        )


def check_rows(
    config: PipelineConfig,
    groups: Sequence[ResolvedGroup],
    used: Sequence[str],
    seen: DataPeek,
    held_out: DataPeek | None,
) -> None:
    """Check the values of the `used` columns in the rows of `data.path` and `data.eval_path`.

    Raises:
        ConfigError: Names the column, the split and the number of rows.
    """
    column = split_column(config.data, config.features)
    name: Literal["train", "all"] = "train" if held_out else "all"
    first = Part(name, config.data.path, seen, config.data, column, bool(config.image_columns))
    parts = [first]
    if held_out is not None:
        assert config.data.eval_path is not None
        parts.append(Part("eval", config.data.eval_path, held_out, config.data))
    _check_split(config, first)
    try:
        _check_columns(config, groups, used, parts)
    except ConfigError:
        if config.features.derive is None:
            raise
        from transform.columns.derive import derived_types

        # Tracing `derive`, to see which columns it replaces, takes seconds.
        derived = set(derived_types(config.features.derive, seen.schema()))
        if not derived & set(used):
            raise
        _check_columns(config, groups, [name for name in used if name not in derived], parts)
    _check_batch(config, first)


def _check_columns(
    config: PipelineConfig,
    groups: Sequence[ResolvedGroup],
    used: Sequence[str],
    parts: Sequence[Part],
) -> None:
    targets = {config.label.column, config.features.weight} & set(used)
    for part in parts:
        for name in used:
            if name not in targets:
                _check_has_values(name, part)
        for group in groups:
            for name in set(group.columns) & set(used):
                _check_values(group.group, name, part)
        if config.label.column in targets:
            _check_label(config.label, part)
        if config.features.weight in targets:
            _check_weight(config.features.weight, part)
    if config.label.column in targets and config.label.kind == "multiclass" and len(parts) == 2:
        _check_eval_classes(config.label, *parts)


def _check_has_values(name: str, part: Part) -> None:
    if not part.whole:
        return
    rows = np.flatnonzero(part.values(name).present)
    if len(rows) == 0:
        raise ConfigError(
            f"features: column {name!r} of {part.path} has no value in any of its "
            f"{part.seen.rows} rows that Transform can use (NaN, infinite values and empty texts "
            "count as missing). Remove it from the features."
        )
    if part.split == "all" and _none_in_train(rows, part):
        raise ConfigError(
            f"features: column {name!r} of {part.path} has values in {len(rows)} of "
            f"{part.seen.rows} rows, none of which comes into the train split: nothing is learned "
            "of it. Remove it from the features, or add rows."
        )


def _none_in_train(rows: np.ndarray, part: Part) -> bool:
    is_known = part.splits is not None or len(rows) <= _RARE_ROWS  # of many rows, one trains
    return is_known and not part.in_train(rows).any()


def _check_values(group: Group, name: str, part: Part) -> None:
    """Reject values that a group's encoder cannot encode, and lists of another length."""
    if group.length is not None:
        counts = np.diff(part.values(name).offsets)
        others = np.flatnonzero((counts != 0) & (counts != group.length))
        if len(others):
            raise ConfigError(
                f"features: group {group.name!r}: column {name!r} of {part.path} holds "
                f"{counts[others[0]]} values in row {others[0]}, but length: {group.length} "
                f"requires {group.length} or none in each row. {len(others)} of {len(counts)} rows "
                "read have another length."
            )
    if group.encode is not None and group.encode.integer is not None:
        values = part.values(name)
        held = values.values.to_numpy(zero_copy_only=False)
        fractions = held[values.usable & (held != np.floor(held))]
        if len(fractions):
            raise ConfigError(
                f"features: group {group.name!r}: column {name!r} of {part.path} holds "
                f"{len(fractions)} values that are not integers, for example {fractions[0]:g}, and "
                "encode: integer uses the value as the id. Use a scale, or encode: bucketize."
            )


def _check_label(label: Label, part: Part) -> None:
    what = f"features.label: column {label.column!r} of {part.path}"
    values = part.values(label.column)
    _refuse_missing(
        what,
        values,
        "leave such rows out by data.drop_rows_without_label: true, or give them a value in",
    )
    import pyarrow.types as types

    first = values.first(values.present)
    if label.kind == "multiclass" and types.is_binary(first.type):
        numbers, ids = None, np.unique(first.to_pylist(), return_inverse=True)[1]
    elif types.is_binary(first.type):
        wanted = str(label.positive).encode()
        numbers = np.asarray([text == wanted for text in first.to_pylist()], np.float64)
        ids = numbers.astype(np.int64)
    else:
        held = first.to_numpy(zero_copy_only=False)
        if label.positive is not None:
            # In the column's own type: a float column holds float32, and 0.1 is another number.
            positive = label.positive_number
            held = held == (np.float32(positive) if held.dtype == np.float32 else positive)
        numbers = held.astype(np.float64)
        ids = np.unique(held, return_inverse=True)[1]  # float64 would merge large integers
    if numbers is not None:
        _refuse_invalid(what, label, numbers)
    if part.split == "eval":
        return
    if label.positive is not None and numbers is not None and not numbers.any():
        _refuse_positive(what, label, first.to_pylist(), part)
    others = np.flatnonzero(ids != np.argmax(np.bincount(ids)))
    if len(others) == 0 or (part.whole and _none_in_train(others, part)):
        most = first[int(np.flatnonzero(ids == np.argmax(np.bincount(ids)))[0])].as_py()
        _refuse_constant(what, most, part)
    if label.kind == "multiclass" and part.split == "all" and part.whole:
        _check_rare_classes(what, ids, first, part)


def _check_rare_classes(what: str, ids: np.ndarray, first: pa.Array, part: Part) -> None:
    """Reject a class without train rows: no model knows it, and evaluation would fail."""
    counts = np.bincount(ids)
    rows = np.flatnonzero(np.isin(ids, np.flatnonzero(counts <= _RARE_ROWS)))
    unseen = np.setdiff1d(ids[rows], ids[rows[part.in_train(rows)]])
    if len(unseen):
        places = [int(np.flatnonzero(ids == each)[0]) for each in unseen]
        rows_of = {_shown(first[place].as_py()): int(counts[ids[place]]) for place in places}
        _refuse_unseen(what, rows_of, "or hold out less by data.eval_percent")


def _check_eval_classes(label: Label, train: Part, held_out: Part) -> None:
    """Reject a class that only the separate evaluation rows have."""
    if not (train.whole and held_out.whole):
        return
    known, found = (
        Counter(part.values(label.column).first(part.values(label.column).present).to_pylist())
        for part in (train, held_out)
    )
    unseen = {_shown(value): rows for value, rows in found.items() if value not in known}
    if unseen:
        what = f"features.label: column {label.column!r} of {held_out.path}"
        _refuse_unseen(what, unseen, f"or give {train.path} some")


def _refuse_unseen(what: str, rows_of: Mapping[str, int], fix: str) -> None:
    some = list(rows_of.items())[:_SHOWN_VALUES]
    listed = ", ".join(f"{name} ({rows} {'row' if rows == 1 else 'rows'})" for name, rows in some)
    classes = "1 class is" if len(rows_of) == 1 else f"{len(rows_of)} classes are"
    more = len(rows_of) - len(some)
    listed += f" and {more} more" if more else ""
    raise ConfigError(
        f"{what}: {classes} only in the eval split, so no model can learn them: {listed}. Remove "
        f"their rows, merge such classes in features.derive, {fix}."
    )


def _refuse_positive(what: str, label: Label, held: Sequence[object], part: Part) -> None:
    """Raise because no row has the positive value of the label."""
    counts = Counter(held).most_common()
    names = [_shown(value) for value, _ in counts]
    listed = ", ".join(f"{_shown(value)} ({rows:,} rows)" for value, rows in counts[:_SHOWN_VALUES])
    more = f" and {len(counts) - _SHOWN_VALUES:,} more" if len(counts) > _SHOWN_VALUES else ""
    where = "" if part.whole else " read"
    text = isinstance(label.positive, str)
    fix = nearest(str(label.positive), names) if text else "name the one that counts as 1."
    raise ConfigError(
        f"{what}: label.positive={label.positive!r} is the value of none of the {len(held):,} "
        f"rows{where}. They hold {listed}{more}; {fix}"
    )


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(float(f"{value:.7g}")) if isinstance(value, float) else str(value)


def _refuse_constant(what: str, value: object, part: Part) -> None:
    where = "of the train split" if part.whole else "read"
    raise ConfigError(
        f"{what} is constant (value {_shown(value)} in all rows {where}): nothing can be learned "
        "from it. Use another column, or more data."
    )


def _refuse_missing(what: str, values: Values, fix: str) -> None:
    missing = ~values.present
    if missing.any():
        raise ConfigError(
            f"{what} is missing in {int(missing.sum())} of {len(missing)} rows read; {fix} "
            "features.derive."
        )


def _refuse_invalid(what: str, label: Label, numbers: np.ndarray) -> None:
    if label.kind == "regression" or label.positive is not None:
        return
    if label.kind == "binary":
        wrong = (numbers != 0) & (numbers != 1)
        complaint = "is neither 0 nor 1 (name the value that counts as 1 in label.positive)"
    else:
        wrong = (numbers < 0) | (numbers != np.floor(numbers))
        complaint = "is not a class id 0, 1, 2, ..."
    if wrong.any():
        raise ConfigError(
            f"{what} {complaint} in {int(wrong.sum())} of {len(numbers)} rows read, "
            f"for example {numbers[wrong][0]:g}."
        )


def _check_weight(name: str | None, part: Part) -> None:
    assert name is not None
    what = f"features.weight: column {name!r} of {part.path}"
    values = part.values(name)
    _refuse_missing(what, values, "give these rows a weight, 0 for none, in the data or in")
    negative = values.first(values.present).to_numpy(zero_copy_only=False) < 0
    if negative.any():
        raise ConfigError(f"{what} is negative in {int(negative.sum())} rows. Use 0 or more.")


def _check_batch(config: PipelineConfig, train: Part) -> None:
    """Check that the train split has a full global batch, which an optimizer step needs."""
    size = max(training.batch_sizes.largest for training in config.trainings)
    section = "training" if size == config.training.batch_sizes.largest else "tuning.search"
    if not train.seen.complete:
        return
    rows = train.seen.rows
    if train.splits is not None:
        rows = int(np.count_nonzero(train.splits == "train"))
    elif train.split == "all":  # the Trainer counts them
        rows = int(rows * train.data.shares["train"] / 100 + 5 * np.sqrt(rows))
    if size > rows:
        raise ConfigError(
            f"{section}.global_batch_size={size} exceeds the {rows} rows of the train split of "
            f"data.path={config.data.path}: an optimizer step needs a full global batch. "
            f"Use {rows} or less."
        )
