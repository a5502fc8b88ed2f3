"""Which files a pattern with {SPAN}, {VERSION} or a date names: those of the latest spans.

The placeholders are those of TFX's file-based ExampleGen
(`tfx.components.example_gen.utils.calculate_splits_fingerprint_span_and_version`), which takes one
span. Here a window of several is possible, and a span keeps its digits as they are in the path
(TFX writes span-03 as span-3 where the pattern does not say {SPAN:2}). Neither TFX nor TensorFlow
is imported.
"""

from __future__ import annotations

import datetime
import glob
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

_ESCAPED = re.compile(r"\[([*?[])\]")


def escape(path: str) -> str:
    """Return a pattern that matches this path alone; of another file system, the path as it is."""
    return path if "://" in path else glob.escape(path)


def literal_folder(folder: str, pattern: str) -> str:
    """Return the folder without wildcards that the files of a pattern below a folder lie in."""
    literal = [folder] if folder else []
    for part in pattern.split("/")[:-1]:
        name = _ESCAPED.sub(r"\1", part)
        if glob.escape(name) != part:  # it may match other names too
            break
        literal.append(name)
    return "/".join(literal)


SEPARATOR = "\n"
"""Between the patterns of a window's spans, where one text has to hold them."""

_PLACEHOLDER = re.compile(r"\{(SPAN|VERSION|YYYY|MM|DD)(?::(\d+))?\}")
_DATE = ("YYYY", "MM", "DD")
_DATE_DIGITS = {"YYYY": 4, "MM": 2, "DD": 2}
_EPOCH = datetime.date(1970, 1, 1)
_LISTED = 8

_Glob = Callable[[str], Iterable[str]]


class Span(NamedTuple):
    """The files of one span, in its latest version.

    Attributes:
        number: of the span; of a date, the days since 1970-01-01.
        version: its latest one; None where the pattern has no {VERSION}.
        pattern: the glob of its files, without placeholders.
    """

    number: int
    version: int | None
    pattern: str


def has_placeholders(pattern: str) -> bool:
    """Return whether a pattern has {SPAN}, {VERSION} or a part of a date."""
    return bool(_PLACEHOLDER.search(pattern))


def check_pattern(pattern: str) -> None:
    """Check the placeholders of a path or pattern, by TFX's rules.

    Raises:
        ValueError: They contradict each other; the message says what to write.
    """
    names = [match[1] for match in _PLACEHOLDER.finditer(pattern)]
    twice = next((name for name in names if names.count(name) > 1), None)
    dates = [name for name in _DATE if name in names]
    if twice:
        raise ValueError(f"{pattern}: {{{twice}}} is there twice; use it once")
    if "SPAN" in names and dates:
        raise ValueError(f"{pattern}: use either {{SPAN}} or the date {{YYYY}}, {{MM}}, {{DD}}")
    if dates and len(dates) < len(_DATE):
        lacking = ", ".join(f"{{{name}}}" for name in _DATE if name not in dates)
        raise ValueError(f"{pattern}: a date needs {{YYYY}}, {{MM}} and {{DD}}; add {lacking}")
    if "VERSION" in names and "SPAN" not in names and not dates:
        raise ValueError(
            f"{pattern}: {{VERSION}} counts the versions of a span; add {{SPAN}} or a date, or use "
            "{SPAN} in its place"
        )
    for match in _PLACEHOLDER.finditer(pattern):
        if match[2] and (int(match[2]) == 0 or match[1] in _DATE):
            raise ValueError(
                f"{pattern}: {match[0]}: a width is for {{SPAN:3}} and {{VERSION:2}}, 1 or more"
            )


def _find_spans(folder: str, pattern: str, glob: _Glob) -> list[Span]:
    """List the spans that have files, by number, each in its latest version."""
    check_pattern(pattern)
    expression = re.compile(rf"(?:^|/){_to_regex(pattern)}$")
    spans: dict[tuple[int, int | None], Span] = {}
    for path in sorted(map(str, glob(_below(escape(folder), _PLACEHOLDER.sub("*", pattern))))):
        match = expression.search(path)
        if match is None:
            continue
        tokens = match.groupdict()
        number = _span_number(tokens, path)
        version = int(tokens["VERSION"]) if "VERSION" in tokens else None
        filled = _PLACEHOLDER.sub(lambda each, tokens=tokens: tokens[each[1]], pattern)
        before = spans.setdefault((number, version), Span(number, version, filled)).pattern
        if before != filled:
            raise ValueError(
                f"{folder}: {before} and {filled} are the same span {number}; keep one of them"
            )
    ordered = sorted(spans.values(), key=lambda span: (span.number, span.version or 0))
    return list({span.number: span for span in ordered}.values())


def latest_spans(
    folder: str,
    patterns: Mapping[str, str],
    glob: _Glob,
    *,
    count: int = 1,
    last: int | None = None,
    first: int = 0,
) -> dict[str, list[Span]]:
    """Choose the spans of a window: of `count` numbers up to the latest that has files.

    As in TFX's RollingRange a number in the window without files is left out.

    Args:
        folder: without placeholders.
        patterns: split -> pattern of its files below the folder, with placeholders.
        glob: lists the paths that match a glob.
        count: how many numbers; for dates, days.
        last: the window's last number, in place of the latest.
        first: no number below this one.

    Returns:
        Split -> its spans, the latest one last.

    Raises:
        ValueError: There is no such span, or the latest spans of two splits differ.
    """
    chosen: dict[str, list[Span]] = {}
    for split, pattern in patterns.items():
        spans = _find_spans(folder, pattern, glob)
        until = last if last is not None else max((span.number for span in spans), default=0)
        start = max(first, until - count + 1)
        chosen[split] = [span for span in spans if start <= span.number <= until]
        if not chosen[split]:
            asked = "" if last is None else f" from {start} to {until}"
            have = ", ".join(str(span.number) for span in spans[-_LISTED:])
            raise ValueError(
                f"{_below(folder, pattern)}: there is no span{asked}; "
                + (f"there are spans {have}" if have else _listing(folder, glob))
            )
    latest = {split: spans[-1] for split, spans in chosen.items()}
    if len({(span.number, span.version) for span in latest.values()}) > 1:
        differ = " and ".join(f"{_below(folder, s.pattern)} of {n}" for n, s in latest.items())
        raise ValueError(
            f"the latest spans of the splits differ: {differ}; give each the same latest span and "
            "version"
        )
    return chosen


def _listing(folder: str, glob: _Glob) -> str:
    """Say what is in a folder where a span was expected."""
    below = [str(path).rstrip("/") for path in glob(_below(escape(folder), "*"))]
    names = sorted(path.rpartition("/")[2] for path in below)
    return (
        f"{folder} has {', '.join(names[:_LISTED])}" if names else f"{folder} is empty or not there"
    )


def _below(folder: str, pattern: str) -> str:
    return f"{folder.rstrip('/')}/{pattern}" if folder else pattern


def _span_number(tokens: Mapping[str, str], path: str) -> int:
    if "SPAN" in tokens:
        return int(tokens["SPAN"])
    try:
        return (datetime.date(*(int(tokens[name]) for name in _DATE)) - _EPOCH).days
    except ValueError as error:
        date = "-".join(tokens[name] for name in _DATE)
        raise ValueError(f"{path}: {date} is not a date ({error}); rename or remove it") from None


def _to_regex(pattern: str) -> str:
    """Return a regular expression for a glob whose placeholders are named groups."""
    result, end = "", 0
    for match in _PLACEHOLDER.finditer(pattern):
        width = match[2] or _DATE_DIGITS.get(match[1])
        group = rf"(?P<{match[1]}>\d{f'{{{width}}}' if width else '+'})"
        result, end = result + _glob_to_regex(pattern[end : match.start()]) + group, match.end()
    return result + _glob_to_regex(pattern[end:])


def _glob_to_regex(text: str) -> str:
    def translate(part: str) -> str:
        if part.startswith("[") and len(part) > 1:
            return "[^" + part[2:] if part.startswith("[!") else part
        return {"*": "[^/]*", "?": "[^/]"}.get(part) or re.escape(part)

    return "".join(map(translate, re.split(r"(\[!?[^\]]+\]|\*|\?)", text)))
