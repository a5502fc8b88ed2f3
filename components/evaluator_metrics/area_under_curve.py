"""AUC as metrics of TFMA that are NaN where all labels are of one class.

TFMA's own give 0.0 there: a threshold would judge a number that says nothing of the model.
"""

from __future__ import annotations

import math
from typing import Any

from tensorflow_model_analysis.metrics import confusion_matrix_metrics, metric_types


class _OfTwoClasses:
    """Before a metric of confusion matrices, one for each threshold."""

    def _metric_value(self, *, matrices: Any, **options: Any) -> float:
        # Each threshold's matrix counts all rows.
        positive = matrices.tp[0] + matrices.fn[0]
        negative = matrices.tn[0] + matrices.fp[0]
        if not (positive > 0 and negative > 0):
            return math.nan
        return super()._metric_value(matrices=matrices, **options)  # type: ignore[misc]


class DefinedAUC(_OfTwoClasses, confusion_matrix_metrics.AUC):
    """TFMA's AUC of the ROC curve."""


class DefinedAUCPrecisionRecall(_OfTwoClasses, confusion_matrix_metrics.AUCPrecisionRecall):
    """TFMA's AUC of the curve of precision and recall."""


metric_types.register_metric(DefinedAUC)
metric_types.register_metric(DefinedAUCPrecisionRecall)
