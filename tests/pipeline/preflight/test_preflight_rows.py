"""What the rows show to be wrong is refused before any node, with column, split and count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.data.peek import peek
from pipeline.data.samples import Sample
from pipeline.preflight import preflight, preflight_rows
from pipeline.preflight.part import Part

Write = Callable[..., Path]


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
    lines = [",".join(table[0])]
    lines += [
        ",".join(
            "" if v is None else f'"{v}"' if isinstance(v, str) else str(v) for v in r.values()
        )
        for r in table
    ]
    return "\n".join(lines) + "\n"


def parquet(write: Write, folder: Path, table: Any, *overrides: str, name: str = "rows") -> Path:
    table = table if isinstance(table, pa.Table) else pa.Table.from_pylist(table)
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=16)
    return write(lambda c: c["data"].update(path="rows.parquet", source="parquet"))


def refusal(file: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        preflight.check(load_config(file, overrides))
    return str(caught.value)


# A group's step does not fit the values.


@pytest.mark.parametrize(
    ("values", "described"),
    [
        (lambda i: [1.5, 2.5], "up to 2 values per row (float)"),
        (lambda i: [1] * (i % 4), "up to 3"),
    ],
)
def test_a_list_where_single_values_are_due(write, tmp_path, values, described):
    text = refusal(parquet(write, tmp_path, rows(amount=values)))
    assert "column 'amount'" in text
    assert described in text
    assert "z_score" in text


def test_a_list_that_never_holds_more_than_one_value_is_none(write, tmp_path):
    preflight.check(load_config(parquet(write, tmp_path, rows(amount=lambda i: [i + 0.5]))))


def _near_a_billion(i: int) -> float | None:
    return None if i == 5 else 1e9 + (i % 3 - 1) + 0.25


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_floats_that_differ_but_not_in_float32(write, tmp_path, source):
    table = rows(amount=_near_a_billion)
    file = write(csv=csv_of(table)) if source == "csv" else parquet(write, tmp_path, table)
    text = refusal(file)
    assert "column 'amount'" in text
    assert "from 999999999.25 to 1000000001.25" in text
    assert "all 1e+09 as float32" in text
    assert "int64 is exact" in text


def test_a_label_that_differs_but_not_in_float32(write):
    file = write(csv=csv_of(rows(price=lambda i: 1e9 + i % 3 + 0.25)))
    label = "features.label={column: price, kind: regression}"
    text = refusal(file, label, "evaluation={}")
    assert "column 'price'" in text
    assert "from 1000000000.25 to 1000000002.25, which are all 1e+09 as float32" in text


def test_a_constant_column_is_not_taken_for_one_that_float32_flattens(write, tmp_path):
    preflight.check(load_config(parquet(write, tmp_path, rows(amount=lambda i: 1e9))))


def test_a_list_of_floats_under_an_encoder(write, tmp_path):
    text = refusal(parquet(write, tmp_path, rows(city=lambda i: [1.5, 2.5])))
    assert "column 'city'" in text
    assert "encode: vocabulary takes string or int" in text


def test_a_large_uint64_is_text(write, tmp_path):
    table = pa.Table.from_pylist(rows())
    big = pa.array([2**63 + i for i in range(60)], pa.uint64())
    text = refusal(parquet(write, tmp_path, table.set_column(1, "age", big)))
    assert "column 'age' is of type string" in text
    file = parquet(write, tmp_path, table.set_column(2, "city", big))
    preflight.check(load_config(file))


def _with_holes() -> pa.Table:
    lists = [[i, None] if i == 37 else [i, 1] for i in range(60)]
    return pa.Table.from_pylist(rows()).append_column("tags", pa.array(lists))


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
    """Only where it is used, and not in a set, where order does not matter."""
    preflight.check(load_config(parquet(write, tmp_path, _with_holes())))
    file = tmp_path / "pipeline.yaml"
    text = refusal(file, "features.passthrough=[tags]")
    assert "column 'tags' of" in text
    assert "rows.parquet has a list with a missing value in row 5 of row group 2" in text
    assert "list<" in text
    group = "{name: tags, columns: [tags], encode: {multi_hot: {top_k: 3}}}"
    numbers = "{name: numbers, columns: [amount, age], scale: z_score}"
    preflight.check(load_config(file, [f"features.groups=[{numbers}, {group}]"]))


def test_a_list_of_ints_with_a_missing_value_that_derive_reads(write, tmp_path, monkeypatch):
    (tmp_path / "of_tags.py").write_text(
        "import tensorflow as tf\n"
        "def read(inputs):\n"
        "    tags = tf.sparse.to_dense(inputs['tags'])\n"
        "    return {'first': tf.cast(tags[:, 0], tf.float32)}\n"
        "def leave(inputs):\n"
        "    return {'older': tf.sparse.to_dense(inputs['age'])[:, 0]}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file = parquet(write, tmp_path, _with_holes())
    assert "column 'tags' of" in refusal(file, "features.derive=of_tags.read")
    preflight.check(load_config(file, ["features.derive=of_tags.leave"]))


def test_lists_of_a_fixed_length(write, tmp_path):
    group = "features.groups=[{name: g, columns: [amount], length: %d, scale: z_score}]"
    pairs = rows(amount=lambda i: None if i == 4 else [i + 0.5, 1.0 + i % 3])
    file = parquet(write, tmp_path, pairs)
    preflight.check(load_config(file, [group % 2]))
    text = refusal(file, group % 3)
    assert "is a column of up to 2 values per row (float), and length: 3 takes a list of 3" in text
    parquet(write, tmp_path, rows(amount=lambda i: [1.0] if i == 4 else [i + 0.5, 1.0 + i % 3]))
    text = refusal(file, group % 2)
    assert "holds 1 values in row 4, but length: 2" in text


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_texts_and_classes_with_line_breaks_are_values(write, tmp_path, source):
    """Transform escapes them: tests/transform/test_names.py."""
    table = rows(
        city=lambda i: "New\nYork" if i % 20 == 7 else "Oslo",
        bought=lambda i: ("yes", "n\ro")[i % 2],
    )
    file = write(csv=csv_of(table)) if source == "csv" else parquet(write, tmp_path, table)
    label = "features.label={column: bought, kind: multiclass}"
    preflight.check(load_config(file, [label, "evaluation.metrics=[]"]))


@pytest.mark.parametrize("values", [[60.0, 12.0, None], [60.0, 12.5, None]])
def test_encode_integer_takes_whole_floats(write, values):
    file = write(csv=csv_of(rows(amount=lambda i: values[i % 3])))
    groups = "features.groups=[{name: n, columns: [amount], encode: {integer: {size: 61}}}]"
    if values[1] == 12.0:
        preflight.check(load_config(file, [groups]))
    else:
        text = refusal(file, groups)
        assert "column 'amount'" in text
        assert "20 values that are not integers, for example 12.5" in text


def test_rows_without_a_label(write):
    table = rows(bought=lambda i: None if i % 10 == 4 else i % 2)
    text = refusal(write(csv=csv_of(table)))
    assert "column 'bought'" in text
    assert "is missing in 6 of 60 rows" in text
    assert "data.drop_rows_without_label: true" in text
    dropped = "data.drop_rows_without_label=true"
    preflight.check(load_config(write(csv=csv_of(table)), [dropped]))
    text = refusal(write(csv=csv_of(table)), dropped, "training.global_batch_size=58")
    assert "global_batch_size=58 exceeds" in text
    nothing = csv_of(rows(bought=lambda i: None))
    assert "'bought'" in refusal(write(csv=nothing), dropped)


def test_classes_that_only_eval_has(write, tmp_path):
    """One row of a class, which comes into the eval split by its hash; and rows of eval's own."""
    table = rows(bought=lambda i: "rare" if i == 17 else ("yes", "no")[i % 2])
    label = ("features.label={column: bought, kind: multiclass}", "evaluation.metrics=[]")
    text = refusal(write(csv=csv_of(table)), *label, "data.eval_percent=60")
    assert "column 'bought'" in text
    assert "1 class is only in the eval split" in text
    assert "rare (1 row)" in text
    assert "data.eval_percent" in text
    (tmp_path / "new.csv").write_text(csv_of(table), encoding="utf-8")
    plain = csv_of(rows(bought=lambda i: ("yes", "no")[i % 2]))
    text = refusal(write(csv=plain), *label, "data.eval_path=new.csv")
    assert "new.csv: 1 class is only in the eval split" in text
    assert "rare (1 row)" in text


# Columns without values, in a split or at all.


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_a_column_with_values_in_eval_only(write, tmp_path, source):
    """The split is known by the same hash: of 60 rows with one value each, some are refused."""
    texts = []
    for chosen in range(6):
        table = rows(amount=lambda i, chosen=chosen: 1.5 if i == chosen else None)
        file = write(csv=csv_of(table)) if source == "csv" else parquet(write, tmp_path, table)
        try:
            preflight.check(load_config(file))
        except ConfigError as error:
            texts.append(str(error))
    assert 0 < len(texts) < 6
    for text in texts:
        assert "column 'amount'" in text
        assert "in 1 of 60 rows, none of which comes into the train split" in text


def test_a_parquet_column_of_nulls_alone(write, tmp_path):
    table = pa.Table.from_pylist(rows())
    nulls = pa.array([None] * 60, pa.float64())
    text = refusal(parquet(write, tmp_path, table.set_column(0, "amount", nulls)))
    assert "column 'amount'" in text
    assert "no value" in text


def test_an_eval_file_without_values_in_a_column(write, tmp_path):
    (tmp_path / "eval.csv").write_text(csv_of(rows(amount=lambda i: None)))
    text = refusal(write(csv=csv_of(rows())), "data.eval_path=eval.csv")
    assert "data.eval_path=" in text
    assert "column 'amount' has no value in any of the 60 rows" in text


def test_an_eval_file_with_another_type(write, tmp_path):
    (tmp_path / "eval.csv").write_text(csv_of(rows(age=lambda i: i + 0.5)))
    text = refusal(write(csv=csv_of(rows())), "data.eval_path=eval.csv")
    assert "column 'age' is of type float there, and of type int in data.path" in text


def test_an_eval_file_may_lack_what_nothing_uses(write, tmp_path):
    (tmp_path / "eval.csv").write_text(csv_of(rows()))
    table = csv_of(rows(note=lambda i: "x"))
    preflight.check(load_config(write(csv=table), ["data.eval_path=eval.csv"]))


# Label and weight.


def _every(values):
    return lambda i: values[i % len(values)]


@pytest.mark.parametrize(
    ("columns", "override", "facts"),
    [
        ({"amount": _every([float("nan")])}, None, ["'amount'", "no value in any of the 60 rows"]),
        (
            {"bought": lambda i: None if i < 9 else i % 2},
            None,
            ["'bought'", "missing in 9 of 60 rows read, in the split train and eval"],
        ),
        ({"bought": lambda i: i % 3}, None, ["0 nor 1", "in 20 of 60 rows", "for example 2"]),
        ({"bought": _every([1])}, None, ["is constant (value 1"]),
        (
            {"bought": _every(["Yes"])},
            "features.label.positive='Yes'",
            ["is constant (value Yes in all rows of the train split)"],
        ),
        ({"weight": lambda i: None if i == 3 else 1.0}, "features.weight=weight", ["'weight'"]),
        ({"weight": lambda i: i - 2.0}, "features.weight=weight", ["is negative in 2 rows"]),
    ],
)
def test_values_that_cannot_be_used(write, columns, override, facts):
    text = refusal(write(csv=csv_of(rows(**columns))), *filter(None, [override]))
    assert all(fact in text for fact in facts), text


def test_a_label_with_missing_values_in_the_eval_file(write, tmp_path):
    (tmp_path / "eval.csv").write_text(csv_of(rows(bought=lambda i: None if i == 5 else i % 2)))
    text = refusal(write(csv=csv_of(rows())), "data.eval_path=eval.csv")
    assert "missing in 1 of 60 rows read, in the split eval" in text


def test_the_positive_value_is_compared_in_the_columns_own_type(write):
    """A float column holds float32(0.1), which is not 0.1."""
    table = csv_of(rows(bought=lambda i: (0.1, 0.7)[i % 2]))
    preflight.check(load_config(write(csv=table), ["features.label.positive=0.1"]))
    text = refusal(write(csv=table), "features.label.positive=0.2")
    assert "rows.csv: label.positive=0.2 is the value of none of the 60 rows. They hold" in text
    assert text.endswith("0.1 (30 rows), 0.7 (30 rows); name the one that counts as 1.")


def test_the_error_of_an_unknown_positive_value_lists_the_values(write):
    answers = csv_of(rows(bought=lambda i: ("No", "Yes", "No")[i % 3]))
    preflight.check(load_config(write(csv=answers), ["features.label.positive='Yes'"]))
    text = refusal(write(csv=answers), "features.label.positive='yes'")
    assert "label.positive='yes' is the value of none of the 60 rows" in text
    assert text.endswith("They hold No (40 rows), Yes (20 rows); did you mean 'Yes'?")
    many = csv_of(rows(bought=lambda i: f"answer {i}"))
    text = refusal(write(csv=many), "features.label.positive='yes'")
    assert "They hold answer 0 (1 rows), answer 1 (1 rows)" in text
    assert "and 52 more; use one of answer 0, answer 1," in text


# Rows.


def test_a_batch_of_more_rows_than_come_into_the_train_split(write):
    """37 of the 60 rows come into the train split, as `ExampleGen` splits them."""
    preflight.check(load_config(write(), ["training.global_batch_size=37"]))
    text = refusal(write(), "training.global_batch_size=38")
    assert "exceeds the 37 rows of the train split" in text


def test_a_split_without_rows_is_refused(write):
    """One row comes into one split, by chance."""
    messages = []
    for age in range(12):
        file = write(csv=csv_of(rows(age=lambda i, age=age: age)[:1]))
        config = load_config(file, ["training.global_batch_size=1"])
        seen = peek(config.data)
        assert seen is not None
        try:
            preflight_rows._check_split(config, Part("all", config.data.path, seen, config.data))
        except ConfigError as error:
            messages.append(str(error))
    assert len(messages) == 12
    assert any("none of its 1 rows comes into the train split" in text for text in messages)
    assert any("none of its 1 rows comes into the eval split" in text for text in messages)
    assert "Add rows" in messages[0]
    assert "data.eval_path" in messages[0]


# Columns that nothing uses are not judged.


def test_columns_that_nothing_uses_are_not_judged(write, tmp_path):
    def nested(i: int) -> dict[str, int]:
        return {"a": i}

    table = rows(place=nested, nothing=lambda i: None)
    preflight.check(load_config(parquet(write, tmp_path, table)))
    text = refusal(parquet(write, tmp_path, table), "features.groups.0.columns=[place]")
    assert "column 'place'" in text
    assert "struct<a: int64>, which a tf.Example cannot hold" in text


def test_a_label_of_bools_in_csv(write):
    """It is a label of 0 and 1, and `positive: "True"`, which older configurations have, holds."""
    table = csv_of(rows(bought=lambda i: i % 2 == 0)).replace("True", "TRUE")
    for positive in (None, "True", 1):
        label = {"column": "bought", "kind": "binary"}
        file = write(
            lambda c, p=positive, label=label: c["features"].update(
                label=label if p is None else {**label, "positive": p}
            ),
            csv=table,
        )
        seen = preflight.check(load_config(file))
        assert seen is not None
        assert seen.columns["bought"] == "int"


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
    batch = Sample.batch

    def counting(self: Sample, rows: Any) -> Any:
        hashed.extend(rows.tolist())
        return batch(self, rows)

    monkeypatch.setattr(Sample, "batch", counting)
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
