"""The `features:` section of `init`: columns with equal steps in groups, with the reasons."""

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
from pipeline.common.plain_line import plain_line
from pipeline.features.column_facts import ColumnFacts, DataFacts
from pipeline.features.feature_rules import Proposal, TableFacts, keeps_numbers, propose
from pipeline.features.leaks import MAY_GIVE_AWAY, choose, find_leaks, warnings_of
from shared_core.run_warning import RunWarning
from transform.spec.common import OTHERS

_WIDTH = 100
_SHOWN_COLUMNS = 12  # per group, in its comment
_SHOWN_LEFT_OUT = 50


class LeftOut(NamedTuple):
    """A column that does not become a feature, and why: a phrase without a final period."""

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


@dataclass(frozen=True)
class _Suggestion:
    """The lines of the section, and what to say of it.

    `left_out` are the columns in no group, in the order of the data. Equal values of
    `group_columns`, which are among them, belong in one split. `files` is the `data.files` of the
    columns that are read from files, and `model` the kind of the model that takes the features.
    """

    lines: list[str]
    left_out: tuple[LeftOut, ...]
    warnings: tuple[RunWarning, ...]
    group_columns: tuple[str, ...]
    files: Mapping[str, str]
    model: str


def suggest(
    data: DataFacts, path: str, label: ColumnFacts, target: JsonObject, comments: Sequence[str] = ()
) -> _Suggestion:
    """Return the section for a label, whose content is `target`, with comments on it.

    Raises:
        ConfigError: No column is usable.
    """
    others = [column for column in data.columns if column is not label]
    table = TableFacts(
        frozenset(column.name for column in data.columns),
        data.values,
        keeps_numbers(others, label, target["kind"]),
        Path(path) if Path(path).is_dir() else Path(path).parent,
    )
    proposals = [propose(column, table) for column in others]
    usable = [proposal.column for proposal in proposals if proposal.step is not None]
    leaks = choose(find_leaks(data.values, label.name), usable)
    leaking = [p for p in proposals if p.column in leaks.left_out and p.step is not None]
    proposals = [_without(p, leaks.left_out.get(p.column)) for p in proposals]
    proposals, model = _with_model(proposals)
    groups = _grouped(proposals)
    if not groups:
        reasons = "; ".join(f"{p.column}: {p.measured}" for p in proposals)
        reasons = reasons or f"{label.name} is its only column"
        raise ConfigError(f"--data={path}: no column is usable as a feature ({reasons})")
    left_out = tuple(LeftOut(p.column, p.measured) for p in proposals if p.step is None)
    lines = ["features:"]
    if leaks.kept:
        lines += _comment(f"CHECK: {MAY_GIVE_AWAY}", "  # ")
    for column, reason in leaks.kept.items():
        lines += _comment(f"{column} {reason}.", "  #   ")
    lines += ["  groups:", *_group_lines(groups), *_leaking_lines(leaking)]
    lines += [*(f"  # {line}" for line in comments), f"  label: {flow(target)}"]
    if left_out:
        lines.append("  # Left out:")
    for column, reason in left_out:
        lines += _comment(f"{column}: {reason}", "  #   ")
    by = tuple(p.column for p in proposals if p.group)
    files = {p.column: p.paths for p in proposals if p.paths is not None}
    return _Suggestion(lines, left_out, warnings_of(leaks.kept), by, files, model)


def _with_model(proposals: list[Proposal]) -> tuple[list[Proposal], str]:
    """Return the proposals with the steps for the kind of the model, and this kind."""
    used = [proposal for proposal in proposals if proposal.step is not None]
    if any(proposal.step is not None and proposal.step.name == "image" for proposal in used):
        return proposals, "conv"
    if len(used) == 1 and used[0].tokens is not None:
        sequence = used[0]._replace(step=used[0].tokens)
        return [sequence if each is used[0] else each for each in proposals], "transformer"
    return proposals, "mlp"


def _without(proposal: Proposal, leak: str | None) -> Proposal:
    """Return the proposal to leave a column out that leaks the label; without a leak, the same."""
    if leak is None:
        return proposal
    back = "" if proposal.step is None else "; a line of the YAML can bring it back"
    return Proposal(proposal.column, None, f"leaks the label: it {leak}{back}")


def _grouped(proposals: Sequence[Proposal]) -> Mapping[str, list[Proposal]]:
    """Return unique name -> proposals with equal options, in the order of their first columns."""
    alike: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        if proposal.step is not None:
            alike.setdefault(json.dumps(proposal.step.options), []).append(proposal)
    groups: dict[str, list[Proposal]] = {}
    for members in alike.values():
        step = members[0].step
        assert step is not None
        name, number = step.name, 1
        while name in groups:
            number += 1
            name = f"{step.name}_{number}"
        groups[name] = members
    return groups


def _group_lines(groups: Mapping[str, list[Proposal]]) -> list[str]:
    lines = []
    for name, members in groups.items():
        step = members[0].step
        assert step is not None
        lines += _comment(step.why, "    # ")
        for proposal in members[:_SHOWN_COLUMNS]:
            lines += _comment(f"{proposal.column}: {proposal.measured}", "    #   ")
        if len(members) > _SHOWN_COLUMNS:
            lines.append(f"    #   ... and {len(members) - _SHOWN_COLUMNS} more")
        lines.append(f"    - name: {flow(name)}")
        lines += _list("      columns: ", [_pattern(p.column) for p in members])
        lines += [f"      {key}: {flow(value)}" for key, value in step.options.items()]
    return lines


def _leaking_lines(leaking: Sequence[Proposal]) -> list[str]:
    heading = "    # Left out, because they leak the label. To use one, remove its #:"
    lines = [heading] if leaking else []
    for proposal in leaking:
        assert proposal.step is not None
        group = {"name": proposal.column, "columns": [_pattern(proposal.column)]}
        lines.append(f"    # - {flow({**group, **proposal.step.options})}")
    return lines


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        plain_line(text), _WIDTH, initial_indent=indent, subsequent_indent=indent + "  "
    )


def _pattern(name: str) -> str:
    """Return a column's name as a pattern for `columns:`."""
    return "other[s]" if name == OTHERS else name


def _list(start: str, values: Sequence[str]) -> list[str]:
    """Return the lines of `start[a, b, c]`, broken between values."""
    lines, line = [], start + "["
    for i, value in enumerate(values):
        piece = flow(value) + ("]" if i == len(values) - 1 else ",")
        if len(line) + len(piece) + 1 > _WIDTH and not line.endswith("["):
            lines.append(line)
            line = " " * 8 + piece
        else:
            line += piece if line.endswith("[") else f" {piece}"
    return [*lines, line]


def flow(value: JsonValue) -> str:
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
