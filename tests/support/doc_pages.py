"""The commands of a documentation page, executed in order by one shell in a fresh clone.

A page shows commands in two kinds of fenced blocks:

- `sh`: every line is a command (a heredoc, or lines that end with a backslash, are one).
- `console`: a line that starts with `$ ` is a command; the lines below it are what it prints.
  `...` stands for any lines that the page leaves out.

Every command is executed, except those that start a program of `PLATFORM_TOOLS`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from command_line import ROOT

PLATFORM_TOOLS = ("kubectl", "gcloud", "aws", "mc", "docker", "podman", "buildah")
"""Programs that need a cluster, a cloud or a registry: commands with one are not executed."""

RUN_ELSEWHERE = ("make setup",)
"""Commands that other tests execute (tests/setup): a clone of `fresh_clone` is set up already."""

VARYING = (
    r"\d+ min \d+ s|\d+\.\d+ s|\d+ s\b",  # durations
    r"\d{4}-\d\d-\d\d \d\d-\d\d-\d\d|\d{8}-\d{6}|\b\d{14}\b",  # times of a run
    r"\b\d{10}\b",  # versions of a pushed model
    r"\b[0-9a-f]{12}\b",  # digests of a compiled file
)
"""What a page shows as of one run and another run prints differently."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<'?(\w+)'?$")
_END = "\x1e"


@dataclass(frozen=True)
class Command:
    """A command of a page, heredoc and continued lines included, and its first line there.

    `shown` is what the page shows as its output; "" where it shows none.
    """

    text: str
    shown: str
    line: int

    @property
    def needs_platform(self) -> bool:
        """Whether it starts a program of `PLATFORM_TOOLS`, also in a pipe or as `$(...)`."""
        tools = "|".join(PLATFORM_TOOLS)
        return bool(re.search(rf"(^|[|&;(]) *(?:{tools})\b", self.text.partition("<<")[0]))

    @property
    def is_executed(self) -> bool:
        return not self.needs_platform and not self.text.startswith(RUN_ELSEWHERE)


@dataclass(frozen=True)
class Executed:
    """What a command printed on standard output, and how it ended."""

    command: Command
    code: int
    output: str


def page_commands(text: str) -> list[Command]:
    """The commands of a page in order."""
    found = []
    for block in _FENCE.finditer(text):
        first = text.count("\n", 0, block.start(2)) + 1
        lines = block[2].splitlines()
        if block[1] == "sh":
            found += [Command(each, "", first + at) for at, each in _joined(lines)]
        elif block[1] == "console":
            found += _with_output(lines, first)
    return found


def _joined(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Commands of shell lines, each with the number of its first line."""
    at = 0
    while at < len(lines):
        start, text = at, lines[at].partition("  #")[0].rstrip()
        if heredoc := _HEREDOC.search(text):
            end = lines.index(heredoc[1], at)
            text, at = "\n".join([text, *lines[at + 1 : end + 1]]), end
        while text.endswith("\\"):
            at += 1
            text += f"\n{lines[at]}"
        at += 1
        if text and not text.startswith("#"):
            yield start, text


def _with_output(lines: list[str], first: int) -> Iterator[Command]:
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        shown = "".join(f"{line}\n" for line in lines[start + 1 : end])
        yield Command(lines[start].removeprefix("$ "), shown, first + start)


def fresh_clone(folder: Path) -> Path:
    """A copy of the files that git has or would add, with the tests' environment as `.venv`."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def execute(
    commands: list[Command],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    adapt: Callable[[str], str] = lambda text: text,
) -> list[Executed]:
    """Executes commands that need no platform in one shell, up to the first that fails.

    `adapt` changes a command before it is executed: an address, an option. A failure is an
    AssertionError with the line in the page and what was printed.
    """
    wanted = [each for each in commands if each.is_executed]
    script = "".join(
        f"{adapt(each.text)}\n__code=$?; printf '{_END}%s{_END}' $__code; "
        "[ $__code = 0 ] || exit $__code\n"
        for each in wanted
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "COLUMNS": "120", **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    outputs = done.stdout.split(_END)
    pairs = zip(wanted, outputs[::2], outputs[1::2], strict=False)
    found = [Executed(command, int(code), output) for command, output, code in pairs]
    failed = [each for each in found if each.code]
    if failed or len(found) < len(wanted):
        last = found[-1] if found else None
        where = f"line {last.command.line}: {last.command.text}\n{last.output}" if last else ""
        raise AssertionError(f"{where}\n{done.stdout if not last else ''}\n{done.stderr[-4000:]}")
    return found


def difference(shown: str, printed: str, replaced: Mapping[str, str]) -> str:
    """What is wrong with a page's output; "" where it agrees with what was printed.

    `replaced` has texts of this execution, and what the page has in their place.
    """
    for here, there in replaced.items():
        printed = printed.replace(here, there)
    lines = (_stable(line) for line in shown.splitlines())
    pattern = "".join(r"(?:.*\n)*?" if ln == "..." else f"{re.escape(ln)}\n" for ln in lines)
    text = "".join(f"{_stable(line)}\n" for line in printed.splitlines())
    if re.fullmatch(pattern, text):
        return ""
    return f"the page shows\n{shown}\nand it prints\n{printed}"


def _stable(line: str) -> str:
    """A line without what differs between two runs, and without its alignment."""
    for pattern in VARYING:
        line = re.sub(pattern, "#", line)
    return re.sub(r" +", " ", line).strip()
