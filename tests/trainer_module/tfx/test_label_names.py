"""The names of two classes, from the label's positive value and the raw schema."""

from __future__ import annotations

from typing import Any

import pytest

from shared_core.feature_layout import LayoutLabel
from trainer_module.tfx.label_names import label_names

TEXTS = 'feature {{ name: "y" type: BYTES string_domain {{ {} }} }}'


@pytest.mark.parametrize(
    ("positive", "values", "expected"),
    [
        ("yes", ["no", "yes"], ["no", "yes"]),
        ("yes", ["maybe", "no", "yes"], ["not yes", "yes"]),
        ("true", ["maybe", "true"], ["maybe", "true"]),
        ("true", ["false", "true", "unknown"], ["not true", "true"]),
        ("True", None, ["False", "True"]),
        ("false", None, ["true", "false"]),
        (3, None, ["not 3", "3"]),
        (None, None, ["0", "1"]),
    ],
)
def test_two_classes(positive: Any, values: list[str] | None, expected: list[str], tmp_path):
    """Without values the column holds ints, as a bool of CSV does."""
    schema = tmp_path / "schema.pbtxt"
    text = 'feature { name: "y" type: INT }'
    if values is not None:
        text = TEXTS.format(" ".join(f'value: "{value}"' for value in values))
    schema.write_text(text)
    label = LayoutLabel(name="y", kind="binary", positive=positive)
    found = label_names(label, numbers=2, transform_output=None, loss=None, raw_schema=str(schema))
    assert found.classes == expected
