"""The table and the page that benchmarks write."""

from __future__ import annotations

import pytest

from benchmarks import _report
from benchmarks._result import Limit, Result, Row, load_all

ROWS = (
    Row("small", "Keras fit", [0.001, 0.002, 0.003], [0.01] * 3, "s", Limit(0.65), "10 steps"),
    Row("memory", "full batch", [3e8], [2e9], "B", Limit(0.12)),
    Row("reading", "alone", [95e3], [100e3], "rows/s", Limit(0.9, least=True)),
    Row("XLA", "without", [1.5], [1.0], "s", Limit(0.5, whose="claim")),
    Row("eager", "graph", [8.0], [100.0], "steps"),
)


@pytest.fixture
def program(tmp_path):
    """A benchmark's source: its docstring is its section."""
    path = tmp_path / "example.py"
    path.write_text(
        '"""Ours against theirs.\n\nIn turns.\n"""\nraise SystemExit("not to be run")\n'
    )
    return path


def test_cells_hold_medians_units_spread_and_verdict():
    assert [_report.cells(row) for row in ROWS] == [
        ("small", "Keras fit, 10 steps", "2 ms", "10 ms", "0.20 (0.10 to 0.30)", "≤ 0.65", "yes"),
        ("memory", "full batch", "300 MB", "2,000 MB", "0.15 (0.15 to 0.15)", "≤ 0.12", "**no**"),
        (
            *("reading", "alone", "95,000 rows/s", "100,000 rows/s"),
            *("0.95 (0.95 to 0.95)", "≥ 0.9", "yes"),
        ),
        ("XLA", "without", "1.5 s", "1.0 s", "1.50 (1.50 to 1.50)", "≤ 0.5", "**no**"),
        ("eager", "graph", "8 steps", "100 steps", "0.080 (0.080 to 0.080)", "", ""),
    ]


def test_the_table_is_aligned_and_names_the_benchmark():
    lines = _report.table([Result("example", "a machine", ROWS)]).splitlines()
    assert lines[0].split()[:4] == ["benchmark", "what", "baseline", "ours"]
    assert len(lines) == 1 + len(ROWS)
    column = lines[0].index("ratio")
    assert [line[column:].split()[0] for line in lines[1:]] == [
        *("0.20", "0.15", "0.95", "1.50", "0.080")
    ]


def details(results, programs):
    return _report.pages(results, programs)[_report.RESULTS / "example.md"]


def test_a_page_of_details_has_the_docstring_the_rows_the_notes_and_the_machine(program, tmp_path):
    result = Result("example", "a machine", ROWS, {"memory": "The weights are 2 MB."})
    page = details([result], tmp_path).strip()
    assert page.startswith("# Ours against theirs\n\nIn turns.\n\n| what | baseline |")
    assert "| XLA | without | 1.5 s | 1.0 s | 1.50 (1.50 to 1.50) | *≤ 0.5* | **no** |" in page
    assert page.endswith("The weights are 2 MB.\n\n`benchmarks/example.py` on a machine.")


def test_the_tables_of_further_machines_are_folded_in_the_same_page(program, tmp_path):
    machines = ("a machine, 2 cores; keras 3", "b machine, 4 cores; keras 3")
    page = details([Result("example", machine, ROWS) for machine in machines], tmp_path)
    assert page.count("# Ours against theirs") == 1
    open_part, _, folded = page.partition("<details>")
    assert open_part.endswith("`benchmarks/example.py` on a machine, 2 cores; keras 3.\n\n")
    assert folded.startswith("\n<summary>The same on b machine, 4 cores</summary>\n\n| what |")
    assert folded.endswith("on b machine, 4 cores; keras 3.\n\n</details>\n")
    assert folded.count("\n| ") == open_part.count("\n| ")


def test_the_summary_has_a_line_per_target_with_the_range_of_its_ratios(program, tmp_path):
    slower = Row("large", "loop", [0.9], [1.0], "s", Limit(0.65))
    result = Result("example", "a machine", (*ROWS, slower))
    page = _report.pages([result], tmp_path)[_report.PAGE]
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert lines[2:] == [
        "| [Ours against theirs](../benchmarks/results/example.md) | Keras fit; loop "
        "| 0.20 to 0.90 in 2 | ≤ 0.65 | **1 of 2** |",
        "|  | full batch | 0.15 | ≤ 0.12 | **no** |",
        "|  | alone | 0.95 | ≥ 0.9 | yes |",
        "|  | without | 1.50 | *≤ 0.5* | **no** |",
    ]
    assert "On a machine." in page


def test_a_benchmark_without_a_target_is_in_the_summary_too(program, tmp_path):
    page = _report.pages([Result("example", "a machine", ROWS[-1:])], tmp_path)[_report.PAGE]
    assert "(../benchmarks/results/example.md) | graph | 0.080 |  |  |" in page


def test_the_summary_has_one_table_per_machine(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.py").write_text('"""Ours against theirs.\n\nIn turns.\n"""\n')
    machines = {"a": "one machine", "b": "another machine", "c": "one machine"}
    results = [Result(name, machine, ROWS[:1]) for name, machine in machines.items()]
    page = _report.pages(results, tmp_path)[_report.PAGE]
    assert [line for line in page.splitlines() if line.startswith("On ")] == [
        *("On one machine.", "On another machine.")
    ]
    assert page.index("results/c.md") < page.index("On one machine") < page.index("results/b.md")


def test_every_program_has_a_section():
    programs = list(_report.PROGRAMS.glob("[!_]*.py"))
    assert len(programs) >= 6
    for path in programs:
        title, text = _report.description(path)
        assert title
        assert len(text) > 100, f"{path.name} does not say what it measures"


def test_the_pages_are_what_was_measured():
    results = load_all()
    assert results
    # Where a docstring has changed since: `python -m benchmarks --table` writes the pages.
    for path, text in _report.pages(results).items():
        assert path.read_text() == text, path
    assert set(_report.RESULTS.glob("*.md")) <= set(_report.pages(results))
