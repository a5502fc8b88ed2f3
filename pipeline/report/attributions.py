"""The columns with the largest attributions, as InputGradients wrote them."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from components.input_gradients.summary import SUMMARY_JSON, AttributionSummary
from pipeline.graph.node_names import NodeName
from pipeline.report.records import NodeRecord, find_output, read_text


def read(records: Mapping[str, NodeRecord]) -> AttributionSummary | None:
    """Return the attributions of a run; None if it has none."""
    output = find_output(records, NodeName.INPUT_GRADIENTS, "attributions")
    text = read_text(output, SUMMARY_JSON)
    return AttributionSummary.model_validate_json(text) if text else None


def table_of(summary: AttributionSummary) -> Table:
    """Return the strongest columns, with the mean of the attributions and of their size."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("strongest columns", overflow="fold")
    table.add_column("mean |attribution|", justify="right", no_wrap=True)
    table.add_column("mean attribution", justify="right", no_wrap=True)
    for name, size in summary.strongest(10):
        table.add_row(Text(name), f"{size:.4g}", f"{summary.mean[name]:+.4g}")
    return table
