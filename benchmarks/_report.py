"""What every benchmark prints, its page of details, and docs/benchmarks.md, from the same rows."""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks._result import RESULTS, Limit, Result, Row, Unit, load_all, machine

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PROGRAMS = Path(__file__).parent
SUMMARY_HEADINGS = ("question", "baseline", "ours / baseline", "wanted", "met")
HEADINGS = ("what", "baseline", "ours", "baseline's", "ratio", "wanted", "met")

INTRODUCTION = """\
# How fast is it?

Each number is a ratio: our measurement divided by that of a named baseline, so that below 1 is
better, unless *wanted* is a lower bound (≥). Both are measured in turns, in one run on one machine;
the ratio is the median over the rounds. A line stands for all comparisons with one target, and
shows the smallest and the largest; *wanted* is the target, in italics a claim that is often made
about other tools. Comparisons without a target, among them those in which ours is slower, and
other machines (one with a GPU) are on the page to which each question links.
"""
COMMANDS = """\
Absolute numbers differ from machine to machine, and ratios do too where cores, caches or disks do.
A line is as old as its file in `benchmarks/results`, which may be older than the code.

```sh
make bench                          # everything; writes these pages
make bench ARGS="step_time"         # one benchmark
make bench ARGS="step_time --models lstm,gru"   # with its options:
.venv/bin/python benchmarks/step_time.py --help
```
"""


def parser(program: str, *, rounds: int, processes: int | None = None) -> argparse.ArgumentParser:
    """Returns the arguments that all benchmarks have: `--runs` and `--quick`.

    Args:
        program: The benchmark's `__file__`.
        rounds: Default of `--runs`.
        processes: Default of `--processes`, for a benchmark that measures in several.
    """
    title, _ = description(Path(program))
    found = argparse.ArgumentParser(description=title)
    found.add_argument("--runs", type=int, default=rounds, help="rounds (default: %(default)s)")
    if processes is not None:
        found.add_argument(
            "--processes",
            type=int,
            default=processes,
            help="each of so many rounds (default: %(default)s)",
        )
    found.add_argument(
        "--quick",
        action="store_true",
        help="as little as shows that it runs; the numbers mean nothing and are not kept",
    )
    return found


def publish(
    program: str, rows: Sequence[Row], *, quick: bool, notes: dict[str, str] | None = None
) -> None:
    """Prints the rows, keeps them and writes the pages; with `quick` it only prints.

    Args:
        program: The benchmark's `__file__`.
        rows: What it measured, all or some of its rows.
        quick: Whether the numbers mean nothing.
        notes: Sentences about what was seen beside the ratios, by subject.
    """
    result = Result(Path(program).stem, machine(), tuple(rows), notes or {})
    print(result.machine)
    print(table([result]))
    for note in result.notes.values():
        print(note)
    if not quick:
        path = result.save()
        write_pages()
        print(f"kept in {path.relative_to(ROOT)}, shown in {PAGE.relative_to(ROOT)}")


def table(results: Sequence[Result]) -> str:
    """Returns all rows as one table of text."""
    lines = [("benchmark", *HEADINGS)]
    lines += [(result.name, *cells(row)) for result in results for row in result.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def write_pages() -> None:
    """Writes docs/benchmarks.md and each benchmark's page of details from what was measured."""
    for path, text in pages(load_all()).items():
        path.write_text(text)


def pages(results: Sequence[Result], programs: Path = PROGRAMS) -> dict[Path, str]:
    """Returns the text of docs/benchmarks.md and of benchmarks/results/NAME.md."""
    by_name = {
        name: list(found) for name, found in itertools.groupby(results, key=lambda r: r.name)
    }
    found = {RESULTS / f"{name}.md": _details(each, programs) for name, each in by_name.items()}
    return {PAGE: _summary([each[0] for each in by_name.values()], programs), **found}


def _summary(results: Sequence[Result], programs: Path) -> str:
    """Returns one table of all benchmarks, each as it was measured on its first machine.

    A line stands for the comparisons of a benchmark that have one target. Comparisons without one
    are on the benchmark's page, and here only where it has no others.
    """
    sections = [INTRODUCTION]
    for on in dict.fromkeys(result.machine for result in results):
        found = [result for result in results if result.machine == on]
        lines = [SUMMARY_HEADINGS, ("---",) * len(SUMMARY_HEADINGS)]
        for result in found:
            title, _ = description(programs / f"{result.name}.py")
            link = f"[{title}](../benchmarks/results/{result.name}.md)"
            for rows in _by_limit(result.rows):
                lines.append((link, *_summarised(rows)))
                link = ""
        table_ = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        sections.append(f"{table_}\n\nOn {on}.\n")
    return "\n".join([*sections, COMMANDS])


def _by_limit(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[Limit | None, list[Row]] = {}
    for row in rows:
        found.setdefault(row.limit, []).append(row)
    free = found.pop(None, [])
    return list(found.values()) or [free]


def _summarised(rows: Sequence[Row]) -> tuple[str, ...]:
    """Returns baseline, ratio, limit and verdict of comparisons that have one limit."""
    names = list(dict.fromkeys(row.baseline_name for row in rows))
    ratios = [row.ratio for row in rows]
    limit = rows[0].limit
    held = [row for row in rows if limit is not None and limit.is_met(row.ratio)]
    ratio = _ratio(ratios[0])
    if len(rows) > 1:
        ratio = f"{_ratio(min(ratios))} to {_ratio(max(ratios))} in {len(rows)}"
    if limit is None:
        verdict = ""
    elif len(held) == len(rows):
        verdict = "yes"
    else:
        verdict = f"**{len(held)} of {len(rows)}**" if held else "**no**"
    baseline = "; ".join(names) if len(names) <= 2 else f"{len(names)} baselines"
    return baseline, ratio, _wanted(limit, marked=True), verdict


def _details(results: Sequence[Result], programs: Path) -> str:
    """Returns a benchmark's page, text from its docstring.

    One that was run on several machines has a table of each, all but the first folded.
    """
    first, *others = results
    title, text = description(programs / f"{first.name}.py")
    parts = [f"# {title}", text, _measured(first), *map(_folded, others)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(result: Result) -> str:
    """Returns the rows, the notes and the machine."""
    rows = ["| " + " | ".join(HEADINGS) + " |", "| --- " * len(HEADINGS) + "|"]
    for row in result.rows:
        shown = (*cells(row)[:-2], _wanted(row.limit, marked=True), _verdict(row))
        rows.append("| " + " | ".join(shown) + " |")
    on = f"`benchmarks/{result.name}.py` on {result.machine}."
    return "\n\n".join(["\n".join(rows), *result.notes.values(), on])


def _folded(result: Result) -> str:
    summary = f"<summary>The same on {result.hardware}</summary>"
    return f"<details>\n{summary}\n\n{_measured(result)}\n\n</details>"


def description(program: Path) -> tuple[str, str]:
    """Returns the title and the text of a program's docstring, without running it."""
    documentation = ast.get_docstring(ast.parse(program.read_text()))
    assert documentation, f"{program} has no docstring: it is its section of the page"
    title, _, text = inspect.cleandoc(documentation).partition("\n")
    return title.rstrip("."), text.strip()


def cells(row: Row) -> tuple[str, ...]:
    """Returns a row as text, in the order of `HEADINGS`."""
    return (
        row.what,
        f"{row.baseline_name}, {row.detail}" if row.detail else row.baseline_name,
        _median(row.ours, row.unit),
        _median(row.baseline, row.unit),
        f"{_ratio(row.ratio)} ({_ratio(min(row.ratios))} to {_ratio(max(row.ratios))})",
        _wanted(row.limit),
        _verdict(row),
    )


def _ratio(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _wanted(limit: Limit | None, *, marked: bool = False) -> str:
    """Returns the limit; what others claim is in italics where `marked`."""
    if limit is None:
        return ""
    text = f"{'≥' if limit.least else '≤'} {limit.value:g}"
    return f"*{text}*" if marked and limit.whose == "claim" else text


def _verdict(row: Row) -> str:
    if row.limit is None:
        return ""
    return "yes" if row.limit.is_met(row.ratio) else "**no**"


def _median(values: Sequence[float], unit: Unit) -> str:
    median = statistics.median(values)
    if unit == "s":
        return f"{median:.1f} s" if median >= 1 else f"{1e3 * median:.3g} ms"
    if unit == "B":
        return f"{median / 1e6:,.0f} MB"
    if unit in ("AUC", "accuracy", "MAE"):
        return f"{unit} {median:.4g}"
    return f"{median:,.0f} {unit}"
