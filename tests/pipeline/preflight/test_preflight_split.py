"""`data.split`: what the rows cannot be split by is refused before any node."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.data.samples import CsvSample
from pipeline.preflight import preflight
from pipeline.preflight.part import Part


def table(**columns: Any) -> str:
    """60 rows of a small, correct table, some of its columns changed."""
    known = {
        "amount": lambda i: i + 0.5,
        "age": lambda i: 20 + i,
        "city": lambda i: ("Oslo", "Lima", "Kyoto")[i % 3],
        "day": lambda i: f"2024-01-{10 + i % 20}",
        "bought": lambda i: i % 2,
        **columns,
    }
    rows = [",".join(str(of(i)) for of in known.values()) for i in range(60)]
    return "\n".join([",".join(known), *rows]) + "\n"


def refusal(file: Any, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        preflight.check(load_config(file, overrides))
    return str(caught.value)


@pytest.mark.parametrize(
    "split",
    [
        "{by: content}",
        "{by: row}",
        "{by: stratified}",
        "{by: stratified, column: city}",
        "{by: time, column: day}",
        "{by: time, column: age}",
        "{by: group, column: age}",
    ],
)
def test_what_rows_can_be_split_by_passes(write, split):
    overrides = [f"data.split={split}", "data.test_percent=10", "training.global_batch_size=8"]
    if "group" in split:
        overrides.append("data.test_percent=0")
    preflight.check(load_config(write(csv=table()), overrides))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("{by: time}", "by: time needs a column"),
        ("{by: row, column: age}", "column=age has no effect with by: row"),
        ("{by: hash}", "Use one of content, row, stratified, time, group"),
        ("{by: group, column: town}", "column 'town'"),
        ("{by: group, column: amount}", "takes whole numbers or texts"),
        ("{by: stratified, column: amount}", "is a number on a scale"),
        ("{by: time, column: city}", "holds 'Oslo', which is no time (60 such texts)"),
    ],
)
def test_what_they_cannot_be_split_by_is_refused(write, split, message):
    text = refusal(write(csv=table()), f"data.split={split}")
    assert message in text or "'town' is not a column" in text


def test_rows_without_a_value_of_the_column(write):
    day = lambda i: "" if i < 3 else f"2024-01-{10 + i % 20}"  # noqa: E731
    text = refusal(write(csv=table(day=day)), "data.split={by: time, column: day}")
    assert "column 'day'" in text
    assert "missing in 3 of 60 rows" in text


def test_times_with_and_without_an_offset_are_refused(write):
    day = lambda i: f"2024-01-{10 + i % 20}T12:00:00" + "+02:00" * (i == 7)  # noqa: E731
    text = refusal(write(csv=table(day=day)), "data.split={by: time, column: day}")
    assert "column 'day'" in text
    assert "'2024-01-17T12:00:00+02:00', with an offset" in text
    assert "'2024-01-10T12:00:00', without one" in text
    assert "Z for UTC" in text


def test_a_regression_label_is_no_class(write):
    text = refusal(
        write(csv=table(price=lambda i: i)),
        "data.split={by: stratified}",
        "features.label={column: price, kind: regression}",
        "evaluation={}",
    )
    assert "is a number on a scale" in text
    assert "by: row" in text


def test_a_time_that_most_rows_share_leaves_a_split_empty(write):
    day = lambda i: "2024-01-01" if i < 5 else "2024-02-02"  # noqa: E731
    text = refusal(write(csv=table(day=day)), "data.split={by: time, column: day}")
    assert "comes into the eval split" in text
    assert "rows: train 60, eval 0" in text


def test_a_class_that_chance_would_keep_from_training_is_split_by_stratified(write):
    """Two rows of a class: by content both may be held out; stratified has one of them train."""
    city = lambda i: "Rare" if i in (7, 31) else ("Oslo", "Lima")[i % 2]  # noqa: E731
    label = "features.label={column: city, kind: multiclass}"
    found = []
    for age in range(8):
        file = write(csv=table(city=city, age=lambda i, age=age: i + age))
        overrides = [label, "evaluation={}", "data.eval_percent=80", "training.global_batch_size=4"]
        overrides.append("features.groups=[{name: n, columns: [age], scale: z_score}]")
        preflight.check(load_config(file, [*overrides, "data.split={by: stratified}"]))
        try:
            preflight.check(load_config(file, overrides))
        except ConfigError as error:
            found.append(str(error))
    assert found
    assert "Rare (2 rows)" in found[0]


@pytest.mark.parametrize("split", ["{by: stratified}", "{by: group, column: city}", "{by: row}"])
def test_more_rows_than_are_ranked_here_are_no_empty_split(write, split):
    rows = "".join(f"{i % 97}.5,{i % 80},{'abcdefghij'[i % 10]},{i % 2}\n" for i in range(20_500))
    file = write(csv="amount,age,city,bought\n" + rows)
    preflight.check(load_config(file, [f"data.split={split}", "training.global_batch_size=13000"]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.eval_percent=60", "data.test_percent=40"], "test_percent=40"),
        (["data.eval_path=rows.csv", "data.test_percent=10"], "remove test_percent"),
    ],
)
def test_settings_that_do_not_go_together(write, overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(write(), overrides)


def test_no_row_is_hashed_twice_to_know_its_split(write, monkeypatch):
    """A table with many columns would take minutes: each column asks for the splits of its rows."""
    hashed = []
    batch = CsvSample.batch

    def counting(self: CsvSample, rows: Any) -> Any:
        hashed.extend(rows.tolist())
        return batch(self, rows)

    monkeypatch.setattr(CsvSample, "batch", counting)
    many = {f"x{i}": lambda row, i=i: row + i / 8 for i in range(30)}

    def change(config: dict[str, Any]) -> None:
        config["features"]["groups"][0]["columns"] = ["amount", "age", *many]

    file = write(change, csv=table(**many))
    preflight.check(load_config(file, ["data.split={by: content}"]))
    assert hashed
    assert len(set(hashed)) == len(hashed)


def test_a_small_table_split_by_row_has_exact_shares(write):
    """As ExampleGen splits it: 60 rows, of which a fifth is held out."""
    config = load_config(write(csv=table()), ["data.split={by: row}", "data.eval_percent=20"])
    seen = preflight.check(config)
    assert seen is not None
    part = Part(split="all", path="rows.csv", seen=seen, data=config.data)
    assert Counter(part.split_of(np.arange(60)).tolist()) == {"train": 48, "eval": 12}


def test_a_missing_column_of_the_split_is_never_the_label(write, tmp_path):
    """`bough` is nearest to the label `bought`, which rows are not grouped by."""
    (tmp_path / "rows.csv").write_text(table())
    text = refusal(
        write(), f"data.path={tmp_path / 'rows.csv'}", "data.split={by: group, column: bough}"
    )
    assert "'bough' is not a column" in text
    assert "'bought'" not in text
