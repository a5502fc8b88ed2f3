"""Columns that leak the label, columns that may, and columns that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

from pipeline.cli.cli import main
from pipeline.config.config_file import load_config
from pipeline.features.leaks import choose, find_leaks, warnings_of

ROWS = 1000
RANDOM = np.random.default_rng(3)
PRICE = RANDOM.gamma(2.0, 100.0, ROWS)
SOLD = np.where(PRICE > 150.0, "yes", "no")
GRADE = np.asarray(["low", "middle", "high"])[np.digitize(PRICE, [100.0, 200.0])]
RARE = RANDOM.uniform(size=ROWS) < 0.05
CODES = RANDOM.permutation(20)
NUMBERS = RANDOM.integers(0, 20, ROWS)  # a code of 20 values that determines `SIDE`
SIDE = np.where(np.isin(NUMBERS, CODES[:9]), "left", "right")
LARGE = 1_577_134_800_018_226_901  # float64 has one value for 256 such integers
CLOSE = np.arange(ROWS) % 40
TAIL = RANDOM.standard_cauchy(ROWS)
DAY = pd.Timestamp("2020-01-01") + pd.to_timedelta(RANDOM.integers(0, 2000, ROWS), "D")
TOWNS = RANDOM.choice(["a", "b", "c"], ROWS)
FLAT = RANDOM.normal(size=ROWS)


def rows(values: Any) -> list[list[Any] | None]:
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return [None if value is None or value != value else [value] for value in plain]


def flipped(values: Any, share: float) -> Any:
    """Return the values with another one in a share of the rows."""
    found, wrong = values.copy(), np.arange(0, ROWS, round(1 / share))
    one, other = np.unique(values)
    found[wrong] = np.where(values[wrong] == one, other, one)
    return found


def shuffled(values: Any, share: float) -> Any:
    """Return the values, those of a share of the rows in other rows."""
    found, wrong = values.copy(), np.arange(0, ROWS, round(1 / share))
    found[wrong] = np.roll(values[wrong], 1)
    return found


def missing(values: Any, where: Any) -> list[Any]:
    return [None if gone else value for value, gone in zip(list(values), where, strict=True)]


def found_in(column: Any, label: Any) -> Any:
    columns = {"a": rows(column), "noise": rows(FLAT), "label": rows(label)}
    found = find_leaks(columns, "label").found
    assert "noise" not in found
    return found.get("a")


def test_made_up_labels_are_not_the_halves_of_the_rows() -> None:
    """A program that makes a table up often draws the label first, of such a seed."""
    label = np.where(np.random.default_rng(0).random(ROWS) < 0.5, "yes", "no")
    found = find_leaks({"a": rows(flipped(label, 0.02)), "label": rows(label)}, "label")
    assert found.found["a"].kind == "strong"
    assert found.explained["a"] > 0.9


def test_leaks_by_kind() -> None:
    for column, label, kind, reason in [
        (PRICE, PRICE, "copy", "equals the label in 100.0% of the rows"),
        (SOLD == "yes", SOLD, "copy", "maps one-to-one to the label ("),
        (RARE.astype(int), np.where(RARE, "yes", "no"), "copy", "maps one-to-one"),
        (NUMBERS, SIDE, "copy", "has codes that determine the label"),
        ([f"g{int(p // 5)}" for p in PRICE], (PRICE // 5 // 10), "strong", "alone predicts"),
        (missing(FLAT, SOLD == "no"), SOLD, "copy", "is missing"),
        (missing(SOLD, RANDOM.uniform(size=ROWS) < 0.6), SOLD, "copy", "equals"),
        (np.log(PRICE), PRICE, "law", "is in the label's order (rank correlation 1.0000)"),
        (2 * NUMBERS + 1, NUMBERS * 10, "copy", "maps one-to-one"),
        (PRICE, SOLD, "law", "separates the label's 2 values by ranges of its values"),
        (LARGE + CLOSE, CLOSE**2, "law", "is in the label's order (rank correlation 1.0000)"),
        (NUMBERS, flipped(SIDE, 0.008), "strong", "alone predicts the label in 99.2%"),
        (missing(FLAT, flipped(SOLD, 0.002) == "no"), SOLD, "copy", "in 99.8% of the rows"),
        (shuffled(PRICE, 0.008), PRICE, "strong", "of the label's variance"),
        (PRICE + RANDOM.normal(0, 8.0, ROWS), PRICE, "law", "alone explains 99.6"),
        (PRICE + RANDOM.normal(0, 12.0, ROWS), PRICE, "strong", "of the label's variance"),
        ([f"{d:%Y-%m-%d}" for d in DAY], [d.value / 1e15 for d in DAY], "law", "variance"),
    ]:
        leak = found_in(column, label)
        assert leak is not None, reason
        assert (leak.kind, reason in leak.reason) == (kind, True), leak


def test_no_leaks() -> None:
    for number, (column, label) in enumerate(
        [
            (PRICE + RANDOM.normal(0, 30.0, ROWS), PRICE),
            (RANDOM.permutation(PRICE), PRICE),
            ([None] * ROWS, PRICE),
            ([f"id {i}" for i in range(ROWS)], SOLD),
            (missing(FLAT, RARE), PRICE),
            (TOWNS, np.where(RANDOM.uniform(size=ROWS) < 0.001, "yes", "no")),
            (LARGE + CLOSE, LARGE + NUMBERS),
            (RARE.astype(int), np.roll(RARE, 7).astype(int)),
            (
                np.where(np.arange(ROWS) < 2, TAIL * 1e9, FLAT),
                np.where(np.arange(ROWS) < 2, TAIL, 0),
            ),
            ([f"{d:%d.%m.%Y}" for d in DAY], PRICE),
        ]
    ):
        assert found_in(column, label) is None, number


def test_honest_tables_lose_no_column() -> None:
    """Tables of scikit-learn; of two irises, petals separate the classes as a law does."""
    for name in ("iris", "breast_cancer", "diabetes"):
        frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
        leaks = find_leaks({column: rows(frame[column]) for column in frame}, "target")
        assert leaks.found == {}, name
    frame = datasets.load_iris(as_frame=True).frame[:100]
    leaks = find_leaks({column: rows(frame[column]) for column in frame}, "target")
    assert {leak.kind for leak in leaks.found.values()} == {"law"}


def test_a_law_is_left_out_unless_nothing_else_predicts_the_label() -> None:
    columns = {"x": rows(PRICE), "noise": rows(FLAT), "y": rows(2 * PRICE)}
    alone = choose(find_leaks(columns, "y"), ["x", "noise"])
    assert (list(alone.left_out), list(alone.kept)) == ([], ["x"])
    columns["other"] = rows(PRICE + RANDOM.normal(0, 100.0, ROWS))
    beside = choose(find_leaks(columns, "y"), ["x", "noise", "other"])
    assert (list(beside.left_out), list(beside.kept)) == (["x"], [])


def test_a_copy_is_left_out_unless_it_is_all_there_is() -> None:
    leaks = find_leaks({"copy": rows(SOLD), "noise": rows(FLAT), "y": rows(SOLD)}, "y")
    assert list(choose(leaks, ["copy", "noise"]).left_out) == ["copy"]
    assert list(choose(leaks, ["copy"]).kept) == ["copy"]
    assert choose(leaks, []).kept == {}


def test_a_line_of_the_yaml_brings_a_leak_back(tmp_path, capsys) -> None:
    """Both kinds, with 99.8 % of the labels; what was left out is the feature that was proposed."""
    other = np.where(RANDOM.uniform(size=ROWS) < 0.8, SOLD, "no")
    codes = np.where(flipped(SOLD, 0.002) == "yes", RANDOM.choice(["done", "paid"], ROWS), "open")
    frame = pd.DataFrame({"other": other, "a code": codes, "price": PRICE, "sold": SOLD})
    frame["sold"] = flipped(SOLD, 0.002)
    frame.to_csv(tmp_path / "t.csv", index=False)
    output = tmp_path / "t.yaml"
    assert main(["init", str(tmp_path / "t.csv"), "--label", "sold", "--output", str(output)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "a code: leaks the label: it has codes" in shown
    assert "price: leaks the label: it separates" in shown
    groups = load_config(output).features.groups
    assert [group.columns for group in groups] == [("other",)]
    output.write_text(output.read_text().replace("# - {name", "- {name"))
    back = load_config(output).features.groups[1:]
    assert [group.columns for group in back] == [("a code",), ("price",)]
    assert back[0].encode is not None


def test_the_terminal_shows_few_and_no_control_codes() -> None:
    shown = warnings_of({f"c{i}\x1b[2J": "separates" for i in range(9)})
    assert len(shown) == 6
    assert "4 more" in str(shown[-1])
    assert "\x1b" not in "".join(map(str, shown))


def test_a_table_of_one_strong_column_can_be_initialised(tmp_path, capsys) -> None:
    """Y = 2x: the column is kept, and the terminal and the YAML say so."""
    x = RANDOM.normal(size=200)
    frame = pd.DataFrame({"x": x, "y": 2 * x})
    frame.to_csv(tmp_path / "law.csv", index=False)
    output = tmp_path / "law.yaml"
    assert main(["init", str(tmp_path / "law.csv"), "--label", "y", "--output", str(output)]) == 0
    assert "warning: x is in the label's order" in capsys.readouterr().out
    assert [group.columns for group in load_config(output).features.groups] == [("x",)]
    assert "CHECK: these features may leak the label" in output.read_text()
    (kept,) = load_config(output).warnings  # which each run repeats
    assert (kept.column, kept.source) == ("x", "init")
    assert "is in the label's order" in str(kept)
