"""`features suggest`: write a first `features:` section for a data file, with reasons."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

import yaml

from pipeline.common.errors import ConfigError
from pipeline.common.json_types import JsonObject, JsonValue
from pipeline.common.output_file import check_output, output_file
from pipeline.common.plain_line import plain_line
from pipeline.common.sources import Source
from pipeline.data.csv_guess import CsvGuess, guess_csv
from pipeline.data.data_sources import files
from pipeline.data.peek import DataPeek
from pipeline.data.tables import ColumnType
from pipeline.features.column_facts import DataFacts, measure, source_of
from pipeline.features.dates import DateParts, date_parts
from pipeline.features.feature_rules import (
    Proposal,
    SuggestedStep,
    TableFacts,
    keeps_numbers,
    label_of,
    propose,
)
from pipeline.features.leaks import MAY_GIVE_AWAY, Choice, choose, find_leaks, warnings_of
from shared_core.atomic_files import message_stream
from shared_core.nearest import nearest_column
from shared_core.run_warning import RunWarning
from transform import FeatureSpec, check_spec
from transform.spec.common import OTHERS

_WIDTH = 100
_SHOWN_COLUMNS = 12  # per group, in its comment
_FEW_ROWS = 200
_SHOWN_LEFT_OUT = 50


class LeftOut(NamedTuple):
    """A column that does not become a feature.

    Attributes:
        column: Name of the column.
        reason: The reason with the numbers that decided; a phrase without a final period.
    """

    column: str
    reason: str


def show_left_out(columns: Sequence[LeftOut], stream: TextIO) -> None:
    """Print the columns that are left out, with reasons; nothing if there are none."""
    if columns:
        print("left out:", file=stream)
    for column, reason in columns[:_SHOWN_LEFT_OUT]:
        line = f"{plain_line(column)}: {plain_line(reason)}"
        print(textwrap.fill(line, _WIDTH, subsequent_indent="    "), file=stream)
    if len(columns) > _SHOWN_LEFT_OUT:
        print(f"{len(columns) - _SHOWN_LEFT_OUT:,} more: the YAML lists them", file=stream)


def suggest_file(
    path: str,
    *,
    source: Source | None = None,
    label: str | None = None,
    output: Path | None = None,
    force: bool = False,
) -> None:
    """Write the suggestion for a data file, or print it.

    Args:
        path: A CSV, Parquet, Arrow or TFRecord file, a glob of them, or `package://...`.
        source: Its format; None: derived from its name.
        label: The column to predict.
        output: YAML file to write; None: standard output.
        force: Overwrite `output` if it exists.

    Raises:
        ConfigError: The data cannot be read, or has no such label or no usable column; or `output`
            exists or cannot be written.
    """
    if output is not None:
        check_output(output, force=force)
    source = source or source_of(path)
    guess = guess_of(path, source)
    data = measure(path, source=source, csv=guess.options if guess else None)
    suggestion = suggest(data, path, label=label, guess=guess)
    text = suggestion.text
    if guess is not None and (section := guess.section()):
        text += "# The data were read with these options, which `run` needs too:\n"
        text += f"# data: {{csv: {_flow(section)}}}\n"
    if guess is not None:
        text += "".join(f"# {plain_line(str(doubt))}\n" for doubt in guess.doubts)
    if output is None:
        print(text, end="")
        return
    with output_file(output) as stream:
        stream.write(text)
    for warning in suggestion.warnings:
        print(f"warning: {warning}", file=message_stream(output))
    show_left_out(suggestion.left_out, message_stream(output))
    print(
        f"{output}: features of {path}. Review its comments before you use it.",
        file=message_stream(output),
    )


@dataclass(frozen=True)
class Suggestion:
    """The section as YAML text.

    Attributes:
        text: The section.
        left_out: The columns that are in no group, in the order of the data.
        warnings: What to check about the other columns.
        group_columns: Columns that are left out, but whose equal values belong in one split.
    """

    text: str
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[RunWarning, ...] = ()
    group_columns: tuple[str, ...] = ()


def guess_of(path: str, source: Source, header: bool | None = None) -> CsvGuess | None:
    """Return the CSV dialect; None for other formats.

    Raises:
        ConfigError: As in `guess_csv`; or `header` is set for another format.
    """
    if source == "csv":
        return guess_csv(files(path, "--data", base="the working directory"), header)
    if header is not None:
        option = "--header" if header else "--no-header"
        raise ConfigError(f"{option}: only for CSV, and the data are {source}; remove it.")
    return None


def suggest(
    data: DataFacts, path: str, *, label: str | None = None, guess: CsvGuess | None = None
) -> Suggestion:
    """Return the section after the checks of `python -m pipeline run`.

    Args:
        data: Statistics of the data.
        path: Path of the data.
        label: The column to predict.
        guess: The detected CSV dialect.

    Raises:
        ConfigError: The label does not exist or has nothing to learn, or no column is usable.
    """
    names = [column.name for column in data.columns]
    target, keeps = None, False
    if label is not None:
        if label not in names:
            raise ConfigError(f"--label={label}: not in {path}; {nearest_column(label, names)}")
        (facts,) = (column for column in data.columns if column.name == label)
        try:
            target = label_of(facts)
        except ValueError as error:
            doubts = [str(each) for each in (guess.doubts if guess else ()) if each.column == label]
            raise ConfigError(" ".join([f"{str(error).rstrip('.')}.", *doubts])) from None
        others = [column for column in data.columns if column.name != label]
        keeps = keeps_numbers(others, facts, target["kind"])
    table = TableFacts(frozenset(names), _date_parts(data, target), data.values, keeps)
    proposals = [propose(column, table) for column in data.columns if column.name != label]
    leaks = _leaks(proposals, data, label)
    leaking = [p for p in proposals if p.column in leaks.left_out and p.step is not None]
    proposals = [_without(p, leaks.left_out.get(p.column)) for p in proposals]
    groups = _grouped(proposals)
    if not groups:
        reasons = "; ".join(f"{p.column}: {p.measured}" for p in proposals)
        reasons = reasons or f"{label} is its only column"
        raise ConfigError(f"--data={path}: no column is usable as a feature ({reasons})")
    without = [proposal for proposal in proposals if proposal.step is None]
    text = _render(data, path, groups, without, leaking, target, leaks.kept, guess)
    types: dict[str, ColumnType] = {column.name: column.type for column in data.columns}
    spec = FeatureSpec.model_validate(yaml.safe_load(text)["features"])
    several = {column.name for column in data.columns if column.several}
    schema = DataPeek(types, data.rows, complete=True).schema()
    for feature in schema.feature:
        if feature.name in several:
            feature.value_count.max = 2
    check_spec(spec, schema)
    gone = tuple(LeftOut(p.column, p.measured) for p in without)
    by = tuple(p.column for p in proposals if p.group)
    return Suggestion(text, gone, warnings_of(leaks.kept), by)


def _date_parts(data: DataFacts, target: Mapping[str, JsonValue] | None) -> dict[str, DateParts]:
    """Return the parts of each date that help to predict the label."""
    if target is None or target["column"] not in data.values:
        return {}
    labels = data.values[target["column"]]
    return {
        column.name: date_parts(
            *(column.dates, data.values[column.name], labels),
            is_number=target["kind"] == "regression",
        )
        for column in data.columns
        if column.dates is not None and not column.several and column.name != target["column"]
    }


def _without(proposal: Proposal, leak: str | None) -> Proposal:
    """Return the proposal to leave a column out that leaks the label; without a leak, the same."""
    if leak is None:
        return proposal
    back = "" if proposal.step is None else "; a line of the YAML can bring it back"
    return Proposal(proposal.column, None, f"leaks the label: it {leak}{back}")


def _leaks(proposals: Sequence[Proposal], data: DataFacts, label: str | None) -> Choice:
    if label is None or label not in data.values:
        return Choice({}, {})
    usable = [proposal.column for proposal in proposals if proposal.step is not None]
    return choose(find_leaks(data.values, label), usable)


@dataclass(frozen=True)
class _SuggestedGroup:
    """Columns with equal steps."""

    name: str
    step: SuggestedStep
    members: tuple[Proposal, ...]


def _grouped(proposals: Sequence[Proposal]) -> list[_SuggestedGroup]:
    """Return groups of equal options with unique names, in the order of their first columns."""
    members: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        if proposal.step is not None:
            members.setdefault(json.dumps(proposal.step.options), []).append(proposal)
    groups: list[_SuggestedGroup] = []
    taken: set[str] = set()
    for alike in members.values():
        step = alike[0].step
        assert step is not None
        name, number = step.name, 1
        while name in taken:
            number += 1
            name = f"{step.name}_{number}"
        taken.add(name)
        groups.append(_SuggestedGroup(name, step, tuple(alike)))
    return groups


def _render(
    data: DataFacts,
    path: str,
    groups: Sequence[_SuggestedGroup],
    left_out: Sequence[Proposal],
    leaking: Sequence[Proposal],
    label: JsonObject | None,
    suspicious: Mapping[str, str],
    guess: CsvGuess | None,
) -> str:
    lines = [
        f"# Suggested for {plain_line(path)}: {data.rows:,} rows, {len(data.columns)} columns.",
        *_of_which_rows(data),
        "# Based on statistics only, which do not know what a column means: review each choice.",
    ]
    if data.rows < _FEW_ROWS:
        lines.append(f"# With fewer than {_FEW_ROWS} rows, check every choice.")
    if guess is not None:
        lines += [f"# {plain_line(reason)}" for reason in guess.reasons]
    lines.append("features:")
    if suspicious:
        lines += _comment(f"CHECK: {MAY_GIVE_AWAY}", "  # ")
    for column, reason in suspicious.items():
        lines += _comment(f"{column} {reason}.", "  #   ")
    lines.append("  groups:")
    for group in groups:
        lines += _comment(group.step.why, "    # ")
        for proposal in group.members[:_SHOWN_COLUMNS]:
            lines += _comment(f"{proposal.column}: {proposal.measured}", "    #   ")
        more = len(group.members) - _SHOWN_COLUMNS
        if more > 0:
            lines.append(f"    #   ... and {more} more")
        lines.append(f"    - name: {_flow(group.name)}")
        lines += _list("      columns: ", [_pattern(p.column) for p in group.members])
        lines += [f"      {key}: {_flow(value)}" for key, value in group.step.options.items()]
    if leaking:
        lines += _comment(
            "Left out, because they leak the label. To use one, remove its #:", "    # "
        )
    for proposal in leaking:
        assert proposal.step is not None
        group = {"name": proposal.column, "columns": [_pattern(proposal.column)]}
        lines.append(f"    # - {_flow({**group, **proposal.step.options})}")
    if label is not None:
        lines.append(f"  label: {_flow(label)}")
    else:
        lines += [
            "  # To train, add the column to predict (or run this command with --label NAME):",
            "  # label: {column: NAME, kind: binary}    # or multiclass, or regression",
        ]
    if left_out:
        lines.append("  # Left out:")
        for proposal in left_out:
            lines += _comment(f"{proposal.column}: {proposal.measured}", "  #   ")
    return "\n".join(lines) + "\n"


def _of_which_rows(data: DataFacts) -> list[str]:
    if data.every == 1:
        return []
    comment = (
        "Counts, ranges and means are of all rows; percentiles, skew and comparisons with the "
        f"label are of a sample of {data.sample_rows:,} rows."
    )
    return textwrap.wrap(comment, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        plain_line(text), _WIDTH, initial_indent=indent, subsequent_indent=indent + "  "
    )


def _pattern(name: str) -> str:
    """Return a column's name as a pattern for `columns:`."""
    return "other[s]" if name == OTHERS else name


def _list(start: str, values: Sequence[str]) -> list[str]:
    """Return the lines of `start[a, b, c]`, broken between values."""
    texts = [_flow(value) for value in values]
    lines, line = [], start + "["
    for i, text in enumerate(texts):
        piece = text + ("]" if i == len(texts) - 1 else ",")
        if len(line) + len(piece) + 1 > _WIDTH and not line.endswith("["):
            lines.append(line)
            line = " " * 8 + piece
        else:
            line += piece if line.endswith("[") else f" {piece}"
    return [*lines, line]


def _flow(value: JsonValue) -> str:
    """Return a value as YAML on one line."""
    # In a list, because a text needs more quotes between brackets than on a separate line.
    text = yaml.safe_dump(
        [value],
        default_flow_style=True,
        width=float("inf"),
        sort_keys=False,
        # PyYAML writes U+0085 unescaped, and reads it as a space.
        allow_unicode="\\x85" not in repr(value),
    )
    return text.strip()[1:-1]
