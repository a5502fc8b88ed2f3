"""The comparison on public tables, without a pipeline: splits, encoding, scores and notes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import tables
from benchmarks._other_models import features_of, predictions
from benchmarks._tables import TABLES, Table

FRAME = pd.DataFrame(
    {
        "": range(1, 41),
        "day": pd.date_range("2020-12-22", periods=40).strftime("%Y/%m/%d"),
        "town": ["Oslo", "Bergen", None, "Moss"] * 10,
        "name": [f"n{i}" for i in range(40)],
        "size": [1.5, np.nan, 3.0, 4.0, 5.0] * 8,
        "sold": ["yes"] * 8 + ["no"] * 32,
    }
)
TABLE = Table(lambda: FRAME, "sold", "binary", ("day",))


def test_rows_put_aside_are_in_no_file_that_is_trained_on(tmp_path):
    aside = tables.split(FRAME, TABLE, tmp_path, seed=3)
    given = pd.read_csv(tmp_path / "table.csv")
    assert sorted([*given["Unnamed: 0"], *aside[""]]) == list(range(1, 41))
    assert (len(aside), (aside.sold == "yes").mean()) == (8, 0.25)  # 8 * 0.2 = 1.6, rounded
    asked = pd.read_csv(tmp_path / "aside.csv")
    assert "sold" not in asked.columns
    assert list(asked["Unnamed: 0"]) == list(aside[""])
    again = tables.split(FRAME, TABLE, tmp_path, seed=4)
    assert set(again[""]) != set(aside[""])


def test_rows_without_a_label_are_given_to_init_and_judge_nothing(tmp_path):
    frame = FRAME.assign(sold=[None, *FRAME.sold[1:]])
    aside = tables.split(frame, TABLE, tmp_path, seed=0)
    assert aside.sold.notna().all()
    assert pd.read_csv(tmp_path / "table.csv").sold.isna().sum() == 1


def test_other_models_get_dates_as_parts_and_no_names():
    train = FRAME.drop(columns=["", "sold"])
    found = features_of(train.iloc[[9, 10]], train, ["day"])
    assert ",".join(found.columns) == "day year,day month,day day,day weekday,town,size"
    assert found.iloc[1].tolist()[:4] == [2021, 1, 1, 4]  # a Friday
    assert found.town.tolist() == ["Bergen", None]


def test_other_models_take_missing_values_and_texts_that_training_has_not():
    """Reference: the label is what `town` and `size` say, so that each model orders all rows."""
    train = FRAME.drop(columns=["", "sold"])
    labels = np.where(FRAME.town == "Oslo", "yes", "no")
    rows = features_of(train.assign(town=["Oslo", "Voss"] * 20), train, ["day"])
    found = predictions("binary", features_of(train, train, ["day"]), labels, rows)
    assert set(found) == {"HistGradientBoosting", "linear model"}
    linear = found["linear model"]
    assert linear.shape == (40,)
    assert linear[::2].min() > linear[1::2].max()


@pytest.mark.parametrize(
    ("kind", "truth", "said", "expected"),
    [
        ("binary", ["no", "yes", "no", "yes"], [0.1, 0.9, 0.6, 0.4], 0.75),
        ("multiclass", ["0", "1", "2", "2"], [0, 1, 2, 1], 0.75),
        ("regression", ["1.5", "2.0"], [1.0, 2.0], 0.25),
    ],
)
def test_scores(kind, truth, said, expected):
    """Reference: by hand. Of the 4 pairs of a yes and a no, 3 are in order."""
    table = TABLE._replace(kind=kind)
    assert tables.score(table, np.array(truth), np.array(said)) == expected


@pytest.mark.parametrize(
    ("name", "better", "met"), [("iris", "linear model", False), ("cars", "trees", True)]
)
def test_the_baseline_is_the_better_of_the_others_over_all_seeds(name, better, met):
    scores = {"ours": [0.9, 0.9], "trees": [0.8, 0.92], "linear model": [0.95, 0.95]}
    quality, time = tables.as_rows(name, tables.Found(150, 4, scores, cpu_seconds=30.0))
    assert quality.detail == better
    assert quality.baseline == scores[better]
    assert quality.limit is not None
    assert quality.limit.is_met(quality.ratio) == met
    assert time.ratio == 0.25
    sentence = f"Behind: {name} ({quality.ratio:.3f} of {better})."
    assert tables.behind([quality, time]) == ("Nothing is behind." if met else sentence)


def test_tables_of_scikit_learn_have_their_labels():
    for name in ("iris", "breast cancer", "digits"):
        table = TABLES[name]
        assert table.label in table.read().columns
