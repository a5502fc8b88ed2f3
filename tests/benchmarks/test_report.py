"""The table and the page that benchmarks write."""

from __future__ import annotations

from benchmarks import _report
from benchmarks._result import Limit, Result, Row, load_all

ROWS = (
    Row("small", "Keras fit", [0.001, 0.002, 0.003], [0.01] * 3, "s", Limit(0.65), "10 steps"),
    Row("memory", "full batch", [3e8], [2e9], "B", Limit(0.12)),
    Row("reading", "alone", [95e3], [100e3], "rows/s", Limit(0.9, least=True)),
    Row("XLA", "without", [1.5], [1.0], "s", Limit(0.5, whose="claim")),
    Row("eager", "graph", [8.0], [100.0], "steps"),
)


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


def test_every_program_has_a_section():
    programs = list(_report.PROGRAMS.glob("[!_]*.py"))
    assert len(programs) >= 6
    for path in programs:
        title, text = _report.description(path)
        assert title
        assert len(text) > 100, f"{path.name} does not say what it measures"


def test_the_pages_are_what_was_measured():
    """On several machines, with targets that are met, missed, claimed by others, and none."""
    results = load_all()
    assert len({result.machine for result in results}) >= 3
    # Where a docstring has changed since: `python -m benchmarks --table` writes the pages.
    for path, text in _report.pages(results).items():
        assert path.read_text() == text, path
    assert set(_report.RESULTS.glob("*.md")) <= set(_report.pages(results))
