"""Ids against amounts and codes: realistic columns on both sides, in several draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from pipeline.cli.cli import main
from pipeline.features.column_facts import ColumnFacts, _cells, _column, _ColumnCounter
from pipeline.features.feature_rules import TableFacts, propose
from pipeline.features.id_rules import id_reason, is_code, repeated_id_reason

Draw = Callable[[np.random.Generator], np.ndarray]


def facts_of(name: str, values: np.ndarray) -> ColumnFacts:
    """Facts as `measure` has them."""
    kind = {"i": "int", "f": "float"}.get(values.dtype.kind, "string")
    array = pa.array(values, from_pandas=True)
    counter = _ColumnCounter(kind, limit=100_000)  # type: ignore[arg-type]
    counter.add(array)
    return _column(name, counter, _cells(array, counter.kind)[0])


def subset(random: np.random.Generator, n: int, of: int) -> np.ndarray:
    return random.choice(of, n, replace=False)


def with_gaps(random: np.random.Generator, n: int, largest: int) -> np.ndarray:
    return 40_000 + np.cumsum(random.integers(1, largest + 1, n))


def with_missing(values: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(values)) % 50 == 3, np.nan, values)


# Names without a meaning, unless the name has to help.
IDS: dict[str, tuple[str, Draw]] = {
    "shuffled": ("x", lambda r: r.permutation(6_891) + 1),
    "drawn from a million": ("x", lambda r: 1 + subset(r, 6_891, 1_000_000)),
    "gaps up to 50": ("x", lambda r: with_gaps(r, 6_891, 50)),
    "blocks of numbers": (
        "x",
        lambda r: np.r_[subset(r, 900, 2_000) + 10**6, subset(r, 800, 2_000) + 7 * 10**6],
    ),
    "ten digits, scattered": ("x", lambda r: r.integers(10**9, 10**10, 3_000)),
    "snowflakes": ("x", lambda r: 2**60 + np.cumsum(r.integers(1, 10**12, 2_000))),
    "phone numbers": ("phone number", lambda r: subset(r, 300, 9 * 10**6) + 10**6),
    "texts": ("x", lambda r: np.array([f"A{i:05d}" for i in r.permutation(2_000)], object)),
}
AMOUNTS: dict[str, tuple[str, Draw]] = {
    "populations": ("x", lambda r: r.lognormal(9, 1.5, 1_000).astype(int)),
    "prices in cents": ("x", lambda r: r.lognormal(8, 1, 3_000).astype(int)),
    "salaries to the unit": ("x", lambda r: r.normal(52_000, 9_000, 2_000).astype(int)),
    "counts": ("x", lambda r: r.poisson(30, 4_000)),
    "years": ("year", lambda r: np.arange(1900, 2021)),
    "every minute": ("elapsed_seconds", lambda r: 60 * np.arange(5_000)),
    "nanoseconds": ("created_at", lambda r: 1_600_000_000 * 10**9 + r.integers(0, 10**17, 2_000)),
    "whole floats": ("x", lambda r: with_missing(r.lognormal(8, 1, 3_000).round())),
}


def test_ids_are_left_out_and_amounts_are_scaled() -> None:
    for case, (name, draw) in {**IDS, **AMOUNTS}.items():
        for seed in range(3):
            proposal = propose(facts_of(name, draw(np.random.default_rng(seed))), TableFacts())
            if case in IDS:
                assert proposal.step is None, (case, proposal)
                assert "ids" in proposal.measured, case
            else:
                assert proposal.step is not None, (case, proposal.measured)
                assert "scale" in proposal.step.options, case


def bundled() -> dict[str, np.ndarray]:
    """The whole numbers of the tables in scikit-learn; none of them is an id."""
    from sklearn import datasets

    found = {}
    for name in ("breast_cancer", "diabetes", "digits", "linnerud", "wine"):
        options = {"scaled": False} if name == "diabetes" else {}
        frame = getattr(datasets, f"load_{name}")(as_frame=True, **options).frame
        for column in frame:
            values = frame[column].to_numpy()
            if np.all(values == np.floor(values)):
                found[f"{name} {column}"] = values
    return found


def test_no_column_of_scikit_learn_is_an_id_or_a_code() -> None:
    columns = bundled()
    assert len(columns) > 60
    for name, values in columns.items():
        facts = facts_of(name.partition(" ")[2], values)
        assert id_reason(facts) is None, name
        assert not is_code(facts), name


def test_ids_that_repeat() -> None:
    """A few stores with many rows each stay a category."""
    for name, values, left_out in [
        ("subject#", np.arange(5_875) % 42, True),
        ("customerId", np.arange(6_000) % 900, True),
        ("client", np.array([f"C{i % 300:04d}" for i in range(3_000)], object), True),
        ("store", np.arange(6_000) % 5, False),
        ("station id", np.arange(90_000) % 600, False),
        ("customer_age", np.arange(6_000) % 60 + 18, False),
        ("product", np.array([f"{'abcdefgh'[i % 8]}{i % 9}" for i in range(3_000)], object), False),
    ]:
        facts = facts_of(name, values if values.dtype.kind == "i" else values.astype(object))
        assert (repeated_id_reason(facts) is not None) == left_out, name
        proposal = propose(facts, TableFacts())
        assert (proposal.step is None) == left_out, name
        assert proposal.group == left_out, name


def codes(random: np.random.Generator, values: np.ndarray, rows: int = 6_000) -> np.ndarray:
    """Of unequal frequencies, as regions and types have them."""
    return random.choice(values, rows, p=random.dirichlet(np.ones(len(values))))


def test_a_name_hints_at_codes_where_the_values_are() -> None:
    for name, draw, expected in [
        ("zipcode", lambda r: codes(r, 98_001 + subset(r, 70, 200)), True),
        ("census_tract", lambda r: codes(r, 17_031_000_000 + subset(r, 200, 900_000)), True),
        ("start_hour", lambda r: codes(r, np.arange(24)), True),
        ("Lot_Area", lambda r: r.lognormal(9.1, 0.5, 2_930).astype(int), False),
        ("number", lambda r: r.poisson(30, 3_000), False),
        ("group_size", lambda r: r.poisson(400, 30_000), False),
    ]:
        facts = facts_of(name, draw(np.random.default_rng(0)))
        assert is_code(facts) == expected, name
        step = propose(facts, TableFacts()).step
        assert step is not None, name
        assert ("encode" in step.options) == expected, name


def test_init_proposes_to_split_by_what_repeats(tmp_path: Path, capsys) -> None:
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "subject": np.arange(420) % 42 + 100,
            "pid": random.permutation(10**6)[:420],
            "tremor": random.normal(size=420),
            "score": random.normal(size=420),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = ["init", "--data", str(tmp_path / "t.csv"), "--output", str(tmp_path / "t.yaml")]
    assert main([*command, "--label", "score"]) == 0
    printed = capsys.readouterr().out
    assert "subject: 42 ids, each in 10.0 rows on average" in printed
    assert "pid: " in printed
    text_on_one_line = " ".join((tmp_path / "t.yaml").read_text().replace("#", "").split())
    assert "split: {by: group, column: subject}" in text_on_one_line
    assert "columns: [tremor]" in text_on_one_line
