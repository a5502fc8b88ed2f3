"""scikit-learn's models on a table, as one would write them down first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._tables import Kind

FREE_TEXT = 0.5  # of the rows hold different texts: names, which no model takes
_CATEGORIES = 255  # that HistGradientBoosting takes as such


def features_of(frame: pd.DataFrame, like: pd.DataFrame, dates: Sequence[str]) -> pd.DataFrame:
    """Returns the features of rows, with dates as parts, and without names and an index.

    Args:
        frame: The rows.
        like: The training rows, which decide what is text and what is left out.
        dates: Columns that are dates.
    """
    found = {}
    for name in like.columns:
        known = like[name].dropna()
        if name in dates:
            when = pd.to_datetime(frame[name], errors="coerce")
            for part in ("year", "month", "day", "weekday"):
                found[f"{name} {part}"] = getattr(when.dt, part)
        elif known.dtype != object:
            found[name] = pd.to_numeric(frame[name], errors="coerce")
        elif known.nunique() <= FREE_TEXT * len(known):
            found[name] = frame[name].astype(object).where(frame[name].notna(), None)
    return pd.DataFrame(found, index=frame.index)


def predictions(
    kind: Kind, train: pd.DataFrame, labels: np.ndarray, rows: pd.DataFrame
) -> dict[str, Any]:
    """Fits each model on training rows and returns what it says of others.

    Args:
        kind: Of the label.
        train: Features of the training rows, numbers or texts.
        labels: Theirs.
        rows: Features of the rows to predict.

    Returns:
        By model: numbers, classes, or for a binary label the probability of the second class.
    """
    found = {}
    for name, model in _models(kind, train).items():
        model.fit(train, labels)
        if kind == "binary":
            found[name] = model.predict_proba(rows)[:, 1]
        else:
            found[name] = model.predict(rows)
    return found


def _models(kind: Kind, train: pd.DataFrame) -> dict[str, Any]:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    texts = [name for name in train.columns if train[name].dtype == object]
    numbers = [name for name in train.columns if name not in texts]
    few = [name for name in texts if train[name].nunique() < _CATEGORIES]
    ids = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan
    )
    boosting = (
        HistGradientBoostingRegressor if kind == "regression" else HistGradientBoostingClassifier
    )
    # Texts come first, so that their places are those of the categories.
    trees = make_pipeline(
        make_column_transformer((ids, texts), ("passthrough", numbers)),
        boosting(categorical_features=[texts.index(name) for name in few]),
    )
    linear = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), texts),
            (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        ),
        Ridge() if kind == "regression" else LogisticRegression(max_iter=1000),
    )
    return {"HistGradientBoosting": trees, "linear model": linear}
