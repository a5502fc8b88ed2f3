"""Values of a batch as a model takes them, and the rows that it cannot take."""

from __future__ import annotations

import pyarrow as pa
import pytest

from components.arrow_example_gen.csv_types import NumberTexts
from pipeline.run.raw_rows import model_rows


@pytest.mark.parametrize(
    ("lists", "wrong"),
    [
        ([["1"], ["x"], ["2"]], [1]),
        ([["x"], [], ["1", "y"], ["2"]], [0, 2]),
        ([[], ["1", "x", "z"], None, ["3"], ["u"]], [1, 4]),
    ],
)
def test_a_list_with_a_text_among_numbers_is_wrong_in_its_row(lists, wrong):
    batch = pa.RecordBatch.from_pydict({"n": pa.array(lists, pa.list_(pa.string()))})
    found = model_rows(batch, {"n": "int"}, NumberTexts())
    assert [each.row for each in found.wrong] == wrong
    kept = [row for row in range(len(lists)) if row not in wrong]
    assert found.rows.tolist() == kept
    assert found.columns["n"].to_pylist() == [[int(t) for t in lists[row] or []] for row in kept]
