"""The strongest columns, as the terminal and `summary.json` show them."""

from __future__ import annotations

import io

import pyarrow as pa
from rich.console import Console

from components.input_gradients.summary import SUMMARY_JSON, summarize
from pipeline.report import attributions
from pipeline.report.records import NodeRecord, OutputArtifact
from pipeline.report.summary_file import _attributions


def test_the_strongest_columns_come_first(tmp_path):
    """Columns c0 to c11 with attributions of c_i = ±i: the mean of their size is i."""
    table = pa.table(
        {
            "prediction": [1.0, 2.0, 3.0, 4.0],
            "baseline_prediction": [0.0] * 4,
            "completeness_error": [0.0] * 4,
            **{f"attribution.c{i}": [i, (-1.0) ** i * i, i, (-1.0) ** i * i] for i in range(12)},
        }
    )
    content = summarize(table, split="eval", steps=8)
    assert (content.rows, content.mean_prediction) == (4, 2.5)
    (tmp_path / SUMMARY_JSON).write_text(content.model_dump_json())
    output = {"attributions": [OutputArtifact(str(tmp_path), {})]}
    records = {"InputGradients": NodeRecord("InputGradients", output)}
    found = attributions.read(records)
    assert found == content
    console = Console(file=io.StringIO(), width=80)
    console.print(attributions.table_of(content))
    lines = console.file.getvalue().splitlines()[1:]
    shown = [line.split() for line in lines]
    assert [name for name, *_ in shown] == [f"c{i}" for i in range(11, 1, -1)]
    assert shown[:2] == [["c11", "11", "+0"], ["c10", "10", "+10"]]
    listed = _attributions(records)
    assert listed[0] == {"column": "c11", "mean_absolute": 11.0, "mean": 0.0}
    assert len(listed) == 12


def test_a_run_without_explain_shows_none():
    assert attributions.read({}) is None
    assert _attributions({}) == []
