"""The artifact type of InputGradients' output."""

from __future__ import annotations

from tfx.types.artifact import Artifact


class Attributions(Artifact):
    """Attributions of the predictions for sampled rows to columns.

    Files: `rows/*.parquet`, one row for each sampled row, and `summary.json`
    (components.input_gradients.summary.AttributionSummary).
    """

    TYPE_NAME = "components.Attributions"
