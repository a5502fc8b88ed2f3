"""Which split a row comes into, of few rows and of many, in any order and in any batches."""

from __future__ import annotations

import itertools
import pickle
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from components.arrow_example_gen import splitting as module
from components.arrow_example_gen.splitting import (
    Splitting,
    _combine,
    _ranks_of,
    cuts_of,
    find_cuts,
    hash_cuts,
    splits_of,
)

SHARES = (70, 20, 10)


def table(rows: int) -> tuple[np.ndarray, pa.RecordBatch]:
    """Rows with a class of 0 to 4, a day that sorts by time, and a number."""
    numbers = np.random.default_rng(8).permutation(rows)
    columns = {
        "class": pa.array([[f"class {i % 5}".encode()] for i in numbers]),
        "day": pa.array([[str(np.datetime64("2000-01-01") + i).encode()] for i in numbers]),
        "number": pa.array([[int(i)] for i in numbers], pa.list_(pa.int64())),
    }
    types = {"number": pa.large_list(pa.int64())}
    text = pa.large_list(pa.large_binary())
    lists = [column.cast(types.get(name, text)) for name, column in columns.items()]
    return np.arange(rows), pa.RecordBatch.from_arrays(lists, list(columns))


def part(rows, start, end):
    return rows[0][start:end], rows[1].slice(start, end - start)


def test_each_split_has_its_share_and_the_first_has_a_row():
    for rows, shares, sizes in (
        (1, (80, 20), [1, 0]),
        (2, (67, 33), [1, 1]),
        (3, (67, 23, 10), [2, 1, 0]),
        (10, (50, 25, 25), [5, 3, 2]),
        (2, (10, 90), [1, 1]),
    ):
        cuts = cuts_of(list(range(rows)), shares)
        splits = np.searchsorted(cuts, np.arange(rows), side="left")
        assert np.bincount(splits, minlength=len(shares)).tolist() == sizes


BY = [
    Splitting(by="content"),
    Splitting(by="group", column="class"),
    Splitting(by="row"),
    Splitting(by="stratified", column="class"),
    Splitting(by="time", column="day"),
    Splitting(by="time", column="number"),
]


@pytest.mark.parametrize("splitting", BY, ids=str)
@pytest.mark.parametrize("rows", [7, 3_000])
def test_batches_workers_and_order_do_not_matter(splitting, rows, monkeypatch):
    """Reference: all rows as one batch; where rows exceed what is exact too."""
    monkeypatch.setattr(module, "EXACT", 1_000)
    monkeypatch.setattr(module, "_EXACT_OF_CLASS", 200)
    monkeypatch.setattr(module, "_SAMPLED", 1_000)
    whole = table(rows)
    cuts = find_cuts([whole], splitting, SHARES)
    expected = splits_of(whole, splitting, SHARES, cuts)
    edges = [0, 1, rows // 3, rows]
    parts = [part(whole, *ends) for ends in itertools.pairwise(edges)]
    if splitting.by not in ("content", "group"):
        combine = _combine(splitting, SHARES)
        workers = [combine.add_input(combine.create_accumulator(), each) for each in parts[::-1]]
        workers = [pickle.loads(pickle.dumps(each)) for each in workers]  # as they travel
        assert combine.extract_output(combine.merge_accumulators(workers)) == cuts
    found = [splits_of(each, splitting, SHARES, cuts) for each in parts]
    assert np.concatenate(found).tolist() == expected.tolist()


@pytest.mark.parametrize("rows", [1, 10_000, 10_001])
def test_few_rows_are_split_by_exact_shares(rows):
    """Up to 10,000 rows of a class; of more, by cuts that no row decides on."""
    read, splitting = table(rows), Splitting(by="row")
    cuts = find_cuts([read], splitting, SHARES)
    exact = cuts_of(sorted(_ranks_of(read, splitting).tolist()), SHARES)
    assert cuts == {None: exact if rows <= 10_000 else hash_cuts(SHARES)}
    sizes = np.bincount(splits_of(read, splitting, SHARES, cuts), minlength=3)
    allowed = 1 if rows <= 10_000 else 4 * (0.25 * rows) ** 0.5
    np.testing.assert_allclose(sizes, np.multiply(SHARES, rows / 100), atol=allowed)


def test_each_class_has_its_shares():
    read, splitting = table(500), Splitting(by="stratified", column="class")
    found = splits_of(read, splitting, SHARES, find_cuts([read], splitting, SHARES))
    classes = np.array(read[1]["class"].to_pylist())[:, 0]
    for name in set(classes):
        assert np.bincount(found[classes == name]).tolist() == [70, 20, 10]


@pytest.mark.parametrize("column", ["day", "number"])
def test_times_are_cut_exactly_and_those_of_many_rows_nearly(column, monkeypatch):
    """Reference: rows by time; a sample of 1,000 of 20,000 rows is off by at most 4 %."""
    read, splitting = table(20_000), Splitting(by="time", column=column)
    numbers = np.array(read[1]["number"].to_pylist())[:, 0]
    for sampled, allowed in ((20_000, 0), (1_000, 800)):
        monkeypatch.setattr(module, "_SAMPLED", sampled)
        found = splits_of(read, splitting, SHARES, find_cuts([read], splitting, SHARES))
        assert (np.diff(found[np.argsort(numbers)]) >= 0).all()
        sizes = np.bincount(found)
        np.testing.assert_allclose(sizes, [14_000, 4_000, 2_000], atol=allowed)


def of_times(texts: list[str]) -> tuple[np.ndarray, pa.RecordBatch]:
    lists = pa.array([[text.encode()] for text in texts], pa.large_list(pa.large_binary()))
    return np.arange(len(texts)), pa.RecordBatch.from_arrays([lists], ["t"])


START = datetime(2024, 3, 31, 0, 30, tzinfo=timezone.utc)  # half an hour before summer time
WRITE = {
    "two offsets": lambda i, time: time.astimezone(
        timezone(timedelta(hours=(-10, 12, 5.5)[i % 3]))
    ).isoformat(),
    "summer time": lambda i, time: time.astimezone(ZoneInfo("Europe/Oslo")).isoformat(" "),
    "Z and zeros": lambda i, time: (
        time.strftime("%Y-%m-%d %H:%M:%S") + (".0", "", ".00")[i % 3] + "Z"
    ),
    "nanoseconds": lambda i, time: f"2024-03-31T00:30:01.{i + 1:09d}".rstrip("0"),
}


@pytest.mark.parametrize("write", WRITE.values(), ids=WRITE)
def test_texts_are_split_by_the_instant(write):
    """Reference: the instants that the texts were written from, 15 minutes apart, in any order."""
    order = np.random.default_rng(1).permutation(200)
    texts = [write(i, START + i * timedelta(minutes=15)) for i in order.tolist()]
    splitting = Splitting(by="time", column="t")
    parts = [of_times(texts[:90]), of_times(texts[90:])]
    cuts = find_cuts(parts, splitting, SHARES)
    found = np.concatenate([splits_of(each, splitting, SHARES, cuts) for each in parts])
    assert found[np.argsort(order)].tolist() == [0] * 140 + [1] * 40 + [2] * 20


def test_a_shorter_text_is_the_start_of_its_time():
    texts = ["2024-01-01 00:00:01", "2024-01-01", "2023-12-31T23:59", "2024", "2024-01-01 00"]
    splitting = Splitting(by="time", column="t")
    rows = of_times(texts)
    cuts = find_cuts([rows], splitting, (80, 20))
    assert splits_of(rows, splitting, (80, 20), cuts).tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["2024-01-01T00:00Z", "2024-01-01 00:00"], "'2024-01-01T00:00Z', with .*, without one"),
        (["2024-01-01T00:00+01", "2024-01-01"], ".*'2024-01-01', without one: .* or Z for UTC"),
        (["2023-02-28", "2023-02-29"], r"'2023-02-29', which is no time \(1 such texts\)"),
        (["31/12/2023", "24:00"], r"'31/12/2023', which is no time .* 2024-05-31 12:00:00"),
    ],
)
def test_times_that_cannot_be_compared_are_refused(texts, message):
    """Each text is in another batch, as on another worker."""
    with pytest.raises(ValueError, match=f"Column 't' holds {message}"):
        find_cuts([of_times([text]) for text in texts], Splitting(by="time", column="t"), SHARES)


def test_groups_stay_together_and_equal_rows_too():
    places, rows = table(300)
    twice = (np.arange(600), pa.Table.from_batches([rows, rows]).combine_chunks().to_batches()[0])
    for splitting in BY[:2]:
        found = splits_of(twice, splitting, SHARES)
        assert found[:300].tolist() == found[300:].tolist()
    grouped = splits_of((places, rows), BY[1], SHARES)
    classes = np.array(rows["class"].to_pylist())[:, 0]
    assert all(len(set(grouped[classes == name])) == 1 for name in set(classes))


@pytest.mark.parametrize("by", ["group", "stratified", "time"])
def test_a_row_without_the_value_is_an_error(by):
    for column in (
        pa.array([[b"a"], []], pa.large_list(pa.large_binary())),
        pa.array([[b"a"], [b""]], pa.large_list(pa.large_binary())),
        pa.array([[1], None], pa.large_list(pa.int64())),
    ):
        rows = np.arange(2), pa.RecordBatch.from_arrays([column], ["x"])
        for name in ("x", "y"):
            splitting = Splitting(by=by, column=name)
            with pytest.raises(ValueError, match=f"A row has no value of column '{name}'"):
                splits_of(rows, splitting, SHARES, find_cuts([rows], splitting, SHARES))


def test_cuts_of_hashes_are_the_first_whole_number_below_the_share() -> None:
    (cut,) = hash_cuts((2, 1))
    assert cut * 3 < 2 * 2**53 <= (cut + 1) * 3


def test_what_does_not_go_together() -> None:
    for by, column in (("row", "x"), ("content", "x"), ("time", None), ("group", None)):
        with pytest.raises(ValueError, match="do not go together"):
            Splitting(by=by, column=column)
