"""TFMA's evaluation of predictions that are a column of the data."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import tensorflow_model_analysis as tfma

from pipeline.config.evaluation import EvaluationConfig, _LabelKind


def frame_config(
    evaluation: EvaluationConfig, *, kind: _LabelKind, weight: str | None = None
) -> tfma.EvalConfig:
    """Return TFMA's configuration for columns `prediction` and `bought`."""
    config = evaluation.eval_config(label="bought", kind=kind, weight=weight)
    (model,) = config.model_specs
    model.prediction_key, model.signature_name = "prediction", ""
    del model.preprocessing_function_names[:]
    return config


def evaluate_frame(
    evaluation: EvaluationConfig,
    rows: pd.DataFrame,
    folder: Path,
    *,
    kind: _LabelKind = "binary",
    weight: str | None = None,
) -> str:
    """Evaluate the column `prediction` against `bought`; return the folder of the result."""
    config = frame_config(evaluation, kind=kind, weight=weight)
    tfma.analyze_raw_data(rows, config, output_path=str(folder))
    return str(folder)
