"""What each run of InputGradients writes, whatever its model and engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from components import AttributionSummary


def check_attributions(artifact: Path, *, rows: int) -> AttributionSummary:
    """Assert that rows and summary fit together; return the summary.

    The attributions of a row add up to the change of its prediction, up to `completeness_error`,
    in float32. The means of the summary are those of the files to 1e-6.
    """
    summary = AttributionSummary.model_validate_json((artifact / "summary.json").read_text())
    found = pd.read_parquet(artifact / "rows")
    assert len(found) == summary.rows == rows
    attributions = found.filter(like="attribution.")
    change = found["prediction"] - found["baseline_prediction"]
    total = attributions.sum(axis=1) + found["completeness_error"]
    np.testing.assert_allclose(total, change, atol=1e-5)
    assert found["completeness_error"].abs().mean() < 0.05 * change.abs().mean()
    means = attributions.abs().mean()
    expected = {f"attribution.{name}": each for name, each in summary.mean_absolute.items()}
    np.testing.assert_allclose(means, [expected[name] for name in means.index], rtol=1e-6)
    return summary
