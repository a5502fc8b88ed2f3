"""`init`: write a complete first YAML for a data file, which `run` accepts without an edit.

Features are those of `suggestion`. The rest follows from the number of rows and from the result of
a model without features: a blessed model must be better than that.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from components.arrow_example_gen.decompress import SUFFIXES as COMPRESSED
from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject
from pipeline.common.number_text import short_number
from pipeline.common.output_file import check_output, output_file
from pipeline.common.plain_line import plain_line
from pipeline.common.sources import SUFFIXES, Source
from pipeline.config.config import PACKAGE_SCHEME, PipelineConfig, is_remote
from pipeline.config.config_file import config_of_text, split_folders
from pipeline.data.csv_guess import CsvGuess, guess_csv
from pipeline.data.data_sources import files, source_of
from pipeline.features.column_facts import ColumnFacts, DataFacts, measure
from pipeline.features.feature_rules import is_small_whole, label_of
from pipeline.features.splits import (
    FEW_ROWS,
    LEAST_ROWS,
    SplitSizes,
    eval_percent,
    split_sizes,
    time_order,
)
from pipeline.features.suggestion import LeftOut, flow, suggest
from shared_core.nearest import nearest_column
from shared_core.run_warning import RunWarning

_ROWS_PER_COLUMN = 4  # with fewer, a table is wide and needs strong regularization
_FEW_DISTINCT = 0.5  # of the rows: with fewer, equal rows dominate a hash-based split
_FEW_OF_A_CLASS = 100  # rows: with fewer, a class's share of a split is random
_TARGET_NAMES = ("label", "target", "class", "outcome", "y", "survived", "price", "species")
_STEPS = 12_000  # optimizer steps of a training without an early stop
_DEEP_STEPS = 3_000  # the same of a model of images or sequences
_MANY = 10_000  # rows
_ROWS_SEEN = 2_000_000  # for many rows, in all epochs


class _Written(NamedTuple):
    """The file that `init` wrote, its label, notes on choices, and warnings about the data."""

    path: Path
    label: str
    kind: str
    notes: Sequence[str]
    left_out: Sequence[LeftOut]
    warnings: Sequence[RunWarning]


def init_file(
    path: str,
    *,
    label: str | None = None,
    source: Source | None = None,
    header: bool | None = None,
    output: Path | None = None,
    force: bool = False,
    check: Callable[[PipelineConfig], object] | None = None,
) -> _Written:
    """Write the YAML for a data file.

    Args:
        path: A file, a glob of files, a folder of images, or `package://...`.
        label: The column to predict; None: one with a usual name (`target`, `class`), or else the
            last possible one.
        source: The data's format; None: derived from its name.
        header: Whether the first line of CSV names the columns, see `CsvOptions`.
        output: YAML file to write; None: the data's name with `.yaml`, in the working directory.
        force: Overwrite `output` if it exists.
        check: Called with the configuration before it is written; may raise ConfigError.

    Raises:
        ConfigError: The data cannot be read, or has no such label, no usable column or too few
            rows; or `output` exists or cannot be written; or `check` refuses the configuration.
    """
    name = _pipeline_name(path)
    output = output or Path(f"{name}.yaml")
    check_output(output, force=force)
    source = source or source_of(path)
    whole, folders = path, split_folders(path) if source == "images" else ()
    path = str(folders[0]) if folders else path
    guess = _guess_of(path, source, header)
    data = measure(path, source=source, csv=guess.options if guess else None)
    chosen, why = (label, "") if label is not None else _likely_label(data)
    facts, target = _target_of(data, chosen, path, guess)
    comments = _label_comments(facts, target, why)
    suggestion = suggest(data, path, facts, target, comments)
    split = _split_of(data, facts, target)
    sizes = _sizes(facts, target, split, path)
    unlabelled = f"{facts.missing:,} of {facts.rows:,} rows have no value in {facts.name}"
    drop = [f"{unlabelled} and are dropped."] if facts.missing else []
    repeated = [
        *(guess.doubts if guess else ()),
        *suggestion.warnings,
        *split.warnings,
        *_equal_rows(data),
    ]
    section = _data(whole, source, output.parent, guess)
    section |= {"files": dict(suggestion.files)} if source != "images" and suggestion.files else {}
    if not folders:  # which are the splits
        section |= {"eval_percent": sizes.eval_percent}
        section |= {"split": split.section} if split.section else {}
    section |= {"drop_rows_without_label": True} if drop else {}
    text = "\n".join(
        [
            *_heading(data, path, guess),
            f"name: {name}",
            *_wrapped(*drop, *([] if folders else [split.why]), *map(str, sizes.warnings)),
            *_group_split(suggestion.group_columns),
            f"data: {flow(section)}",
            *suggestion.lines,
            *_training(
                *(sizes.train, len(data.columns) - 1 - len(suggestion.left_out)),
                as_is=_predicts_means(facts, target),
                kind=suggestion.model,
            ),
            *_evaluation(facts, target),
            f"output: {{folder: output/{name}}}",
            *_warnings(repeated),
            "",
        ]
    )
    config = config_of_text(text, output.parent)
    if check is not None:
        try:
            check(config)
        except ConfigError as error:
            raise ConfigError(
                f"--data={path}: no YAML is written, because `run` would not accept it. {error}"
            ) from None
    with output_file(output) as stream:
        stream.write(text)
    notes = [f"no --label: {_named_label(chosen, why)}"] if why else []
    notes += [*(guess.reasons if guess else ()), *drop]
    notes += [_number_note(facts)] if _predicts_means(facts, target) else []
    warnings = [*repeated, *sizes.warnings]
    return _Written(output, chosen, config.label.kind, notes, suggestion.left_out, warnings)


def _guess_of(path: str, source: Source, header: bool | None) -> CsvGuess | None:
    """Return the CSV dialect; None for other formats, for which `header` must not be set."""
    if source == "csv":
        return guess_csv(files(path, "--data", base="the working directory"), header)
    if header is not None:
        option = "--header" if header else "--no-header"
        raise ConfigError(f"{option}: only for CSV, and the data are {source}; remove it.")
    return None


def _target_of(
    data: DataFacts, label: str, path: str, guess: CsvGuess | None
) -> tuple[ColumnFacts, JsonObject]:
    """Return the statistics of the label and the content of `label:`."""
    columns = {column.name: column for column in data.columns}
    if label not in columns:
        raise ConfigError(f"--label={label}: not in {path}; {nearest_column(label, columns)}")
    try:
        return columns[label], label_of(columns[label])
    except ValueError as error:
        doubts = [str(each) for each in (guess.doubts if guess else ()) if each.column == label]
        raise ConfigError(" ".join([f"{str(error).rstrip('.')}.", *doubts])) from None


def _heading(data: DataFacts, path: str, guess: CsvGuess | None) -> list[str]:
    lines = [
        f"# Suggested for {plain_line(path)}: {data.rows:,} rows, {len(data.columns)} columns.",
        "# Based on statistics only, which do not know what a column means: review each choice.",
    ]
    if data.every > 1:
        lines[1:1] = _wrapped(
            "Counts and ranges are of all rows; means, percentiles, skew and comparisons with the "
            f"label are of a sample of {data.sample_rows:,} rows."
        )
    if data.rows < FEW_ROWS:
        lines.append(f"# With fewer than {FEW_ROWS} rows, check every choice.")
    return lines + [f"# {plain_line(reason)}" for reason in (guess.reasons if guess else ())]


def _wrapped(*texts: str) -> list[str]:
    """Return the texts as comments; none for an empty text."""
    return [f"# {line}" for text in texts for line in textwrap.wrap(plain_line(text), 90)]


def _warnings(found: Sequence[RunWarning]) -> list[str]:
    """Return the lines of `warnings:`, which each run repeats; what its nodes find is not there."""
    lines = [f"  - {flow(each.model_dump(exclude_defaults=True))}" for each in found]
    heading = ["# Each run repeats these. Delete a line once you have checked it.", "warnings:"]
    return [*heading, *lines] if lines else []


def _pipeline_name(path: str) -> str:
    """Return a pipeline name derived from the data's name: `My Houses.csv.gz` -> `my-houses`."""
    stem = Path(path.rstrip("/")).name
    while Path(stem).suffix.lower() in (*COMPRESSED, *SUFFIXES):
        stem = Path(stem).stem
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    name = name if name[:1].isalpha() else f"data-{name}".rstrip("-")
    return name[:63].rstrip("-")


def _likely_label(data: DataFacts) -> tuple[str, str]:
    """Return the most likely label, and why."""
    by_name = {column.name.lower(): column for column in data.columns}
    named = [by_name[name] for name in _TARGET_NAMES if name in by_name]
    if data.rows < LEAST_ROWS:
        rows = "1 row is" if data.rows == 1 else f"{data.rows} rows are"
        raise ConfigError(f"--data: {rows} too few to train a model; use at least {LEAST_ROWS}")
    for column in [*named, *reversed(data.columns)]:
        try:
            label_of(column)
        except ValueError:
            continue
        if column in named:
            return column.name, "chosen by its name"
        return column.name, "chosen because it is the last column that can be a label"
    raise ConfigError("--data: no column can be a label; name one with --label")


def _training(rows: int, columns: int = 1, *, as_is: bool = False, kind: str = "mlp") -> list[str]:
    """Return the lines of `training:` for a number of training rows and of feature columns.

    From `_MANY` rows on, a network of this size does not memorize them. Then there is no dropout,
    whose noise becomes a bias if outputs are exponentials, a lower learning rate, and enough epochs
    to complete the schedule. `as_is`: a logarithm of the label would lead to medians.
    """
    many = rows >= _MANY
    batch = 2 ** round(np.log2(max(rows, 1) / 40))
    batch = max(1, min(int(np.clip(batch, 16, 512 if rows < 100_000 else 1024)), rows))
    steps = -(-rows // batch)
    epochs = _ROWS_SEEN / rows if many else _STEPS / steps
    epochs = int(np.clip(round(epochs), 20, 200))
    patience = max(5, epochs // (3 if many else 5))
    units = [64, 32] if rows < 2_000 else [128, 64]
    dropout, rate = (0.0, 0.002) if many else (0.1, 0.003)
    model, decay = f"hidden_units: {units}, dropout: {dropout}, knots: 8, linear: true", 0.01
    about = [
        "  # Training starts from a linear model. Weights are averaged over about 100 steps.",
        "  ema_momentum: 0.99",
    ]
    if columns >= 50 and rows <= _ROWS_PER_COLUMN * columns:
        model, decay = "hidden_units: [16], dropout: 0.5, knots: 0", 2.0
        about = [f"  # {columns:,} columns: a small model with weight decay, against overfitting."]
    if kind != "mlp":  # such models need larger batches, and each step takes longer
        batch = min(max(batch, 128), rows)
        steps = -(-rows // batch)
        epochs = int(np.clip(round(_DEEP_STEPS / steps), 10, 100))
        patience = max(5, epochs // 5)
        model, rate, decay = f"kind: {kind}", 0.003 if kind == "conv" else 0.001, 0.01
        about = []
    noun = "step" if steps == 1 else "steps"
    bound = "  # The rows that are in memory at a time; the result does not depend on it."
    micro_batch = [bound, f"  micro_batch_size: {min(batch, 32)}"] if kind != "mlp" else []
    return [
        "training:",
        f"  # For {rows:,} training rows: {steps:,} {noun} per epoch. The best epoch is kept, and",
        f"  # training stops after {patience} epochs without improvement.",
        f"  global_batch_size: {batch}",
        *micro_batch,
        f"  epochs: {epochs}",
        *(["  label_scale: z_score"] if as_is else []),
        *about,
        f"  model: {{{model}}}",
        "  optimizer:",
        f"    {{name: adamw, learning_rate: {rate}, weight_decay: {decay}, "
        "schedule: {name: cosine}}",
        f"  early_stopping: {{patience_epochs: {patience}}}",
    ]


def _evaluation(facts: ColumnFacts, target: JsonObject) -> list[str]:
    """Return the lines of `evaluation:`: a blessed model is better than a constant on eval rows.

    The constant's value on these rows is known only in the Evaluator. With heavy tails it differs
    between parts of a table, so no number here could be the threshold.
    """
    by_squares = _predicts_means(facts, target)
    names = "root_mean_squared_error, mean_absolute_error, r2"  # the first one decides
    return [
        "evaluation:",
        "  # Bless a model only if it is better than the best constant on the eval rows, by more",
        "  # than chance explains.",
        *([f"  metrics: [{names}]"] if by_squares else []),
        "  require_better_than_constant: true",
    ]


class _Split(NamedTuple):
    """The content of `data.split` (empty: by a hash of the row), and why it is not by another."""

    section: JsonObject
    why: str = ""
    warnings: tuple[RunWarning, ...] = ()


def _split_of(data: DataFacts, facts: ColumnFacts, target: JsonObject) -> _Split:
    """Choose how rows are split."""
    percent = eval_percent(facts.present)
    classes = target["kind"] != "regression"
    order = time_order(data, facts.name, held_out=percent, classes=classes)
    if order is None:
        return _split_by_rows(data, facts, target)
    section: JsonObject = {"by": "time", "column": order.column}
    problem = order.problem
    if classes and data.every > 1 and facts.texts and facts.texts.top[-1][1] < _FEW_OF_A_CLASS:
        problem = problem or f"few rows are {facts.texts.top[-1][0]!r}, perhaps none of the earlier"
    if not problem:
        follow = f"Rows follow each other in time by {order.column!r}"
        return _Split(section, f"{follow}: the latest {percent} % are held out.")
    warning = RunWarning(
        what=f"rows follow each other in time by {order.column!r}, but {problem}: the split is "
        "random, so that neighbors in time are in both splits",
        fix=f"To hold out the latest rows, correct that and set data.split: {flow(section)}",
        column=order.column,
    )
    return _split_by_rows(data, facts, target)._replace(warnings=(warning,))


def _split_by_rows(data: DataFacts, facts: ColumnFacts, target: JsonObject) -> _Split:
    if target["kind"] != "regression" and facts.type in ("int", "string"):
        assert facts.texts is not None
        value, rows = facts.texts.top[-1]
        if rows < _FEW_OF_A_CLASS:
            why = f"Rows of {value!r}: {rows:,}. Each split gets its share of each class."
            return _Split({"by": "stratified"}, why)
    for warning in _equal_rows(data):
        return _Split({"by": "row"}, f"{warning.what}.")
    if data.rows < FEW_ROWS:
        return _Split({"by": "row"}, "Few rows: each split gets its exact share.")
    return _Split({})


def _sizes(facts: ColumnFacts, target: JsonObject, split: _Split, path: str) -> SplitSizes:
    groups = [facts.present]
    stratified = split.section.get("by") == "stratified"
    if facts.texts is not None and (stratified or target["kind"] == "binary"):
        groups = [count for _, count in facts.texts.top]
    return split_sizes(groups, label=facts.name, kind=target["kind"], path=path)


def _equal_rows(data: DataFacts) -> list[RunWarning]:
    """Return a warning if equal rows are in both splits, because there are few different ones."""
    if data.distinct_rows >= _FEW_DISTINCT * data.sample_rows:
        return []
    among = f"{data.sample_rows:,}" if data.every == 1 else f"a sample of {data.sample_rows:,}"
    return [
        RunWarning(
            what=f"only {data.distinct_rows:,} different rows among {among}: the split also uses "
            "their position, so that equal rows are in both splits",
            fix="Keep the rows of one thing in one split by data.split: {by: group, column: NAME}",
            number=float(data.distinct_rows),
        )
    ]


def _named_label(label: str, why: str) -> str:
    return f"{plain_line(label)} was {why}; name another column with --label NAME."


def _label_comments(facts: ColumnFacts, target: JsonObject, why: str) -> list[str]:
    lines = [_named_label(facts.name, why)] if why else []
    kind = target["kind"]
    if _predicts_means(facts, target):
        lines.append(_number_note(facts))
    elif kind == "regression":
        lines.append("A number on a scale. If its values are classes, use kind: multiclass.")
    elif kind == "multiclass" and facts.texts is not None:
        lines.append(f"{facts.texts.distinct} classes.")
    elif "positive" in target and facts.texts is not None:
        counts = ", ".join(f"{value!r} {count:,} times" for value, count in facts.texts.top[:2])
        lines.append(f"Two values, {counts}: {target['positive']!r} is the positive class, 1.")
        lines.append("Predicted probabilities are those of `positive`.")
    return [plain_line(line) for line in lines]


def _data(path: str, source: Source, folder: Path, guess: CsvGuess | None) -> JsonObject:
    if not path.startswith(PACKAGE_SCHEME) and not is_remote(path):
        path = os.path.relpath(path, folder)
    section = guess.section() if guess else {}
    return {
        **({"source": source} if source != "csv" else {}),
        "path": path,
        **({"csv": section} if section else {}),
    }


def _group_split(columns: Sequence[str]) -> list[str]:
    """Return comments on how to evaluate with subjects or customers unseen in training."""
    if not columns:
        return []
    split = flow({"split": {"by": "group", "column": columns[0]}}).strip("{}")
    return _wrapped(
        f"Rows with the same value of {', '.join(columns)} belong together. To evaluate on values "
        f"that training has not seen, add {split}}} to data."
    )


def _predicts_means(facts: ColumnFacts, target: JsonObject) -> bool:
    """Return whether a label is trained as it is: its median is the value of too many rows."""
    return target["kind"] == "regression" and is_small_whole(facts)


def _number_note(facts: ColumnFacts) -> str:
    assert facts.numbers is not None
    low, high = (short_number(each) for each in (facts.numbers.minimum, facts.numbers.maximum))
    return (
        f"{facts.name} has whole numbers from {low} to {high}, so it is predicted as a number. "
        "If its values are classes, set label.kind: multiclass."
    )
