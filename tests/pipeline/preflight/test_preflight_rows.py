"""What the rows show to be wrong is refused before any node, with column, split and count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.preflight import preflight

Write = Callable[..., Path]
CLASSES = ("features.label={column: bought, kind: multiclass}", "evaluation.metrics=[]")


def rows(**columns: Callable[[int], Any]) -> list[dict[str, Any]]:
    """60 rows of a small, correct table, some of its columns changed."""
    table: dict[str, Callable[[int], Any]] = {
        "amount": lambda i: None if i % 7 == 3 else i + 0.5,
        "age": lambda i: 20 + i,
        "city": lambda i: ("Oslo", "Lima", "Kyoto")[i % 3],
        "bought": lambda i: i % 2,
    }
    return [{name: of(i) for name, of in {**table, **columns}.items()} for i in range(60)]


def csv_of(table: list[dict[str, Any]]) -> str:
    return pd.DataFrame(table, dtype=object).to_csv(index=False)


def parquet(write: Write, folder: Path, table: Any) -> Path:
    table = table if isinstance(table, pa.Table) else pa.Table.from_pylist(table)
    pq.write_table(table, folder / "rows.parquet", row_group_size=16)
    return write(lambda c: c["data"].update(path="rows.parquet", source="parquet"))


def accept(file: Path, *overrides: str) -> None:
    preflight.check(load_config(file, overrides))


def refusal(file: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        preflight.check(load_config(file, overrides))
    return str(caught.value)


# A group's step does not fit the values.


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_the_error_of_an_int_beyond_int64_names_its_value(write, tmp_path, source):
    table = rows(age=lambda i: 2**63 + 5 if i == 41 else i)
    if source == "csv":
        file = write(csv=csv_of(table))
    else:
        ages = pa.array([row["age"] for row in table], pa.uint64())
        table = pa.Table.from_pylist(rows()).set_column(1, "age", ages)
        file = parquet(write, tmp_path, table)
    text = refusal(file)
    assert "column 'age' is of type string" in text
    assert "text because of its value 9223372036854775813, which int64 does not hold" in text


def test_a_list_of_ints_with_a_missing_value(write, tmp_path):
    lists = [[i, None] if i == 37 else [i, 1] for i in range(60)]
    table = pa.Table.from_pylist(rows()).append_column("tags", pa.array(lists))
    text = refusal(parquet(write, tmp_path, table), "features.passthrough=[tags]")
    assert "rows.parquet, row group 2, row 5: column 'tags', list<" in text
    assert "a list of ints has a missing value" in text


def test_lists_of_a_fixed_length(write, tmp_path):
    accept(parquet(write, tmp_path, rows(amount=lambda i: [i + 0.5])))  # as a single value
    group = "features.groups=[{name: g, columns: [amount], length: %d, scale: z_score}]"
    file = parquet(write, tmp_path, rows(amount=lambda i: None if i == 4 else [i + 0.5, i % 3]))
    accept(file, group % 2)
    text = refusal(file, group % 3)
    assert "is a column of up to 2 values per row (float), and length: 3 takes a list of 3" in text
    parquet(write, tmp_path, rows(amount=lambda i: [1.0] if i == 4 else [i + 0.5, 1.0 + i % 3]))
    assert "holds 1 values in row 4, but length: 2" in refusal(file, group % 2)


def test_encode_integer_takes_whole_floats(write):
    groups = "features.groups=[{name: n, columns: [amount], encode: {integer: {size: 61}}}]"
    accept(write(csv=csv_of(rows(amount=lambda i: (60.0, 12.0, None)[i % 3]))), groups)
    text = refusal(write(csv=csv_of(rows(amount=lambda i: (60.0, 12.5, None)[i % 3]))), groups)
    assert "column 'amount'" in text
    assert "20 values that are not integers, for example 12.5" in text


# Columns without values, in a split or at all.


def test_a_column_with_values_in_eval_only(write, tmp_path):
    """The split is known by the same hash: of 60 rows with one value each, some are refused."""
    texts = []
    for chosen in range(6):
        table = rows(amount=lambda i, chosen=chosen: 1.5 if i == chosen else None)
        try:
            accept(parquet(write, tmp_path, table))
        except ConfigError as error:
            texts.append(str(error))
    assert 0 < len(texts) < 6
    for text in texts:
        assert "column 'amount'" in text
        assert "in 1 of 60 rows, none of which comes into the train split" in text


@pytest.mark.parametrize(
    ("columns", "fact"),
    [
        ({"amount": lambda i: None}, "column 'amount' has no value in any of the 60 rows"),
        ({"age": lambda i: i + 0.5}, "'age' is of type float there, and of type int in data.path"),
        ({"bought": lambda i: None if i == 5 else i % 2}, "missing in 1 of 60 rows read"),
    ],
)
def test_an_eval_file_that_does_not_fit(write, tmp_path, columns, fact):
    (tmp_path / "eval.csv").write_text(csv_of(rows(**columns)))
    text = refusal(write(csv=csv_of(rows())), "data.eval_path=eval.csv")
    assert "eval.csv" in text
    assert fact in text


def test_columns_that_nothing_uses_are_not_judged(write, tmp_path):
    table = rows(place=lambda i: {"a": i}, nothing=lambda i: None)
    accept(parquet(write, tmp_path, table))
    text = refusal(parquet(write, tmp_path, table), "features.groups.0.columns=[place]")
    assert "column 'place'" in text
    assert "struct<a: int64>, which a tf.Example cannot hold" in text
    (tmp_path / "eval.csv").write_text(csv_of(rows()))
    accept(write(csv=csv_of(rows(note=lambda i: "x"))), "data.eval_path=eval.csv")


# Label and weight.


def test_rows_without_a_label(write):
    table = csv_of(rows(bought=lambda i: None if i % 10 == 4 else i % 2))
    text = refusal(write(csv=table))
    assert "column 'bought'" in text
    assert "is missing in 6 of 60 rows" in text
    assert "data.drop_rows_without_label: true" in text
    dropped = "data.drop_rows_without_label=true"
    accept(write(csv=table), dropped)
    text = refusal(write(csv=table), dropped, "training.global_batch_size=58")
    assert "global_batch_size=58 exceeds" in text
    assert "'bought'" in refusal(write(csv=csv_of(rows(bought=lambda i: None))), dropped)


def test_classes_that_only_eval_has(write, tmp_path):
    """One row of a class, which comes into the eval split by its hash; and rows of eval's own."""
    table = csv_of(rows(bought=lambda i: "rare" if i == 17 else ("yes", "no")[i % 2]))
    text = refusal(write(csv=table), *CLASSES, "data.eval_percent=60")
    assert "column 'bought'" in text
    assert "1 class is only in the eval split" in text
    assert "rare (1 row)" in text
    assert "data.eval_percent" in text
    (tmp_path / "new.csv").write_text(table, encoding="utf-8")
    plain = csv_of(rows(bought=lambda i: ("yes", "no")[i % 2]))
    text = refusal(write(csv=plain), *CLASSES, "data.eval_path=new.csv")
    assert "new.csv: 1 class is only in the eval split" in text
    assert "rare (1 row)" in text


@pytest.mark.parametrize(
    ("columns", "override", "facts"),
    [
        ({"amount": lambda i: [1.5, 2.5]}, None, ["up to 2 values per row (float)", "z_score"]),
        ({"city": lambda i: [1.5, 2.5]}, None, ["'city'", "vocabulary takes string or int"]),
        ({"amount": lambda i: float("nan")}, None, ["'amount'", "no value in any of its 60 rows"]),
        ({"bought": lambda i: i % 3}, None, ["0 nor 1", "in 20 of 60 rows", "for example 2"]),
        ({"bought": lambda i: 1}, None, ["is constant (value 1"]),
        ({"bought": lambda i: "Yes"}, "features.label.positive='Yes'", ["(value Yes in all rows"]),
        ({"weight": lambda i: i - 2.0}, "features.weight=weight", ["is negative in 2 rows"]),
    ],
)
def test_values_that_cannot_be_used(write, tmp_path, columns, override, facts):
    text = refusal(parquet(write, tmp_path, rows(**columns)), *filter(None, [override]))
    assert all(fact in text for fact in facts), text


def test_the_error_of_an_unknown_positive_value_lists_the_values(write):
    """A float column holds float32(0.1), which is not 0.1."""
    table = csv_of(rows(bought=lambda i: (0.1, 0.7)[i % 2]))
    accept(write(csv=table), "features.label.positive=0.1")
    text = refusal(write(csv=table), "features.label.positive=0.2")
    assert "rows.csv: label.positive=0.2 is the value of none of the 60 rows. They hold" in text
    assert text.endswith("0.1 (30 rows), 0.7 (30 rows); name the one that counts as 1.")
    answers = csv_of(rows(bought=lambda i: ("No", "Yes", "No")[i % 3]))
    accept(write(csv=answers), "features.label.positive='Yes'")
    text = refusal(write(csv=answers), "features.label.positive='yes'")
    assert text.endswith("They hold No (40 rows), Yes (20 rows); did you mean 'Yes'?")


def test_a_label_of_bools_in_csv(write):
    """It is a label of 0 and 1, and `positive: "True"`, which older configurations have, holds."""
    file = write(csv=csv_of(rows(bought=lambda i: i % 2 == 0)).replace("True", "TRUE"))
    for label in ("", ", positive: 'True'", ", positive: 1"):
        accept(file, f"features.label={{column: bought, kind: binary{label}}}")


# The split of the rows.


def table(**columns: Any) -> str:
    """60 rows of a small, correct table, some of its columns changed."""
    return csv_of(
        rows(amount=lambda i: i + 0.5, **{"day": lambda i: f"2024-01-{10 + i % 20}", **columns})
    )


def test_what_rows_can_be_split_by_passes(write):
    accept(write(), "training.global_batch_size=37")  # the whole train split
    for split in ("row", "stratified, column: city", "time, column: day", "group, column: age"):
        test = f"data.test_percent={0 if 'group' in split else 10}"
        split = f"data.split={{by: {split}}}"
        accept(write(csv=table()), split, test, "training.global_batch_size=8")


@pytest.mark.parametrize(
    ("split", "columns", "facts"),
    [
        ("{by: time}", {}, ["by: time needs a column"]),
        ("{by: row, column: age}", {}, ["column=age has no effect with by: row"]),
        ("{by: group, column: bough}", {}, ["'bough' is not a column"]),
        ("{by: group, column: amount}", {}, ["takes whole numbers or texts"]),
        ("{by: stratified, column: amount}", {}, ["is a number on a scale"]),
        ("{by: time, column: city}", {}, ["holds 'Oslo', which is no time (60 such texts)"]),
        (
            "{by: time, column: day}",
            {"day": lambda i: None if i < 3 else f"2024-01-{10 + i % 20}"},
            ["column 'day'", "missing in 3 of 60 rows"],
        ),
        (
            "{by: time, column: day}",
            {"day": lambda i: f"2024-01-{10 + i % 20}T12:00:00" + "+02:00" * (i == 7)},
            ["'2024-01-17T12:00:00+02:00', with an offset", "'2024-01-10T12:00:00', without one"],
        ),
        (  # most rows share a time
            "{by: time, column: day}",
            {"day": lambda i: "2024-01-01" if i < 5 else "2024-02-02"},
            ["comes into the eval split", "rows: train 60, eval 0", "Add rows", "data.eval_path"],
        ),
    ],
)
def test_what_they_cannot_be_split_by_is_refused(write, split, columns, facts):
    text = refusal(write(csv=table(**columns)), f"data.split={split}")
    assert all(fact in text for fact in facts), text
    assert "'bought'" not in text  # rows are not grouped by the label, which is near to `bough`


def test_a_class_that_chance_would_keep_from_training_is_split_by_stratified(write):
    """Two rows of a class: by content both may be held out; stratified has one of them train."""
    city = lambda i: "Rare" if i in (7, 31) else ("Oslo", "Lima")[i % 2]  # noqa: E731
    overrides = [
        *("features.label={column: city, kind: multiclass}", "evaluation={}"),
        *("data.eval_percent=80", "training.global_batch_size=4"),
        "features.groups=[{name: n, columns: [age], scale: z_score}]",
    ]
    texts = []
    for age in range(8):
        file = write(csv=table(city=city, age=lambda i, age=age: i + age))
        accept(file, *overrides, "data.split={by: stratified}")
        try:
            accept(file, *overrides)
        except ConfigError as error:
            texts.append(str(error))
    assert texts
    assert "Rare (2 rows)" in texts[0]


def test_a_table_of_more_rows_than_are_split_here(write, monkeypatch):
    """A rare class is looked at alone where its split depends on no other row."""
    monkeypatch.setattr("pipeline.preflight.preflight_rows._SPLIT_CELLS", 100)
    label = lambda i: "rare" if i == 17 else ("yes", "no")[i % 2]  # noqa: E731
    file = write(csv=csv_of(rows(bought=label)))
    settings = (*CLASSES, "data.eval_percent=60", "training.global_batch_size=30")
    assert "rare (1 row)" in refusal(file, *settings, "data.split={by: content}")
    accept(file, *settings, "data.split={by: stratified}")


def test_percentages_that_do_not_go_together(write):
    for overrides, message in (
        (["data.eval_percent=60", "data.test_percent=40"], "test_percent=40"),
        (["data.eval_path=rows.csv", "data.test_percent=10"], "remove test_percent"),
    ):
        assert message in refusal(write(), *overrides)
