"""Measurements on disk: what stays, what is replaced, what a ratio is."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks._result import Limit, Result, Row, load, load_all

FAST = Row("small, K = 8", "Keras fit", ours=[1.0, 3.0, 1.0], baseline=[2.0, 4.0, 10.0])
OTHER = Row("small, K = 16", "Keras fit", [1.0], [4.0], limit=Limit(0.65), detail="K steps")
RESULT = Result("step_time", "a machine", (FAST, OTHER), {"compiler": "None was used."})


def test_a_ratio_is_the_median_of_the_rounds_ratios_not_the_ratio_of_medians():
    assert FAST.ratios == [0.5, 0.75, 0.1]
    assert FAST.ratio == 0.5  # of the medians it would be 1 / 4


@pytest.mark.parametrize(("ours", "baseline"), [([1.0], [1.0, 2.0]), ([], [])])
def test_what_has_no_ratio_is_refused(ours, baseline):
    with pytest.raises(ValueError, match=r"'small' has \d measurements of ours .* in each round"):
        Row("small", "Keras fit", ours, baseline)


def test_a_limit_holds_up_to_its_value():
    assert Limit(0.65).is_met(0.65)
    assert not Limit(0.65).is_met(0.66)
    assert Limit(0.9, least=True).is_met(0.9)
    assert not Limit(0.9, least=True).is_met(0.89)


def test_rows_that_were_not_measured_this_time_stay(tmp_path):
    RESULT.save(tmp_path)
    again = dataclasses.replace(OTHER, ours=[2.0], detail="1 step")
    path = dataclasses.replace(RESULT, rows=(again,), notes={}).save(tmp_path)
    assert load(path) == dataclasses.replace(RESULT, rows=(FAST, again))


def test_a_note_on_a_row_goes_when_the_row_is_measured_again(tmp_path):
    noted = dataclasses.replace(RESULT, notes={OTHER.what: "slow that day", "machine": "quiet"})
    noted.save(tmp_path)
    path = dataclasses.replace(RESULT, rows=(FAST,), notes={}).save(tmp_path)
    assert load(path).notes == noted.notes
    path = dataclasses.replace(RESULT, rows=(OTHER,), notes={}).save(tmp_path)
    assert load(path).notes == {"machine": "quiet"}


def test_rows_of_other_versions_do_not_stay(tmp_path):
    RESULT.save(tmp_path)
    upgraded = Result("step_time", "a machine; keras 4", (OTHER,))
    assert load(upgraded.save(tmp_path)) == upgraded
    assert load_all(tmp_path) == [upgraded]


def test_another_machine_has_a_table_of_its_own(tmp_path):
    elsewhere = dataclasses.replace(RESULT, machine="b (TM) machine, 2 cores; keras 3", notes={})
    first = dataclasses.replace(elsewhere, name="reading")
    for result in (elsewhere, RESULT, first):
        result.save(tmp_path)
    assert load_all(tmp_path) == [first, RESULT, elsewhere]
    assert (tmp_path / "b-tm-machine-2-cores" / "step_time.json").exists()
