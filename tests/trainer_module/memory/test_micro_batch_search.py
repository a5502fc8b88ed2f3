"""Which sizes are measured and which is chosen, for steps whose need is known by a formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_module.memory.micro_batch_search import (
    Choice,
    DoesNotFit,
    MemoryNeed,
    candidate_sizes,
    search,
)

MIB = 1 << 20


class Step:
    """A step of known need, as a child process would report it; it stops above `budget`."""

    def __init__(self, need, budget, further=0):
        self.need, self.budget, self.further = need, budget, further
        self.measured, self.verified = [], []

    def result(self, bytes_needed, size):
        if size > 1 and bytes_needed > self.budget:
            return MemoryNeed(self.budget, finished=False)
        return MemoryNeed(bytes_needed)

    def measure(self, size):
        self.measured.append(size)
        return self.result(self.need(size), size)

    def verify(self, size):
        self.verified.append(size)
        return self.result(self.need(size) + self.further, size)

    def search(self, largest):
        return search(largest, self.budget, self.measure, self.verify)


def test_sizes_are_powers_of_two_and_the_whole():
    assert candidate_sizes(1) == [1]
    assert candidate_sizes(8) == [1, 2, 4, 8]
    assert candidate_sizes(600) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600]


def test_whole_batch_that_fits_takes_two_measurements():
    step = Step(lambda rows: 30 * MIB + rows * 1024, budget=1024 * MIB)
    assert step.search(600) == Choice(600, 30 * MIB + 600 * 1024, None, None)
    assert step.measured == [1, 600]


def test_two_small_measurements_lead_to_the_size():
    step = Step(lambda rows: (30 + 2 * rows) * MIB, budget=300 * MIB)
    choice = step.search(4096)
    assert choice == Choice(128, 286 * MIB, 256, 542 * MIB)  # the next is predicted
    assert step.measured == [1, 4096, 64, 128]
    assert step.verified == [128]


def test_a_doubtful_next_size_is_measured():
    """256 rows need 4 % more than the budget: too close to rule it out by a prediction."""
    step = Step(lambda rows: (30 + 2 * rows) * MIB, budget=521 * MIB)
    choice = step.search(4096)
    assert (choice.rows, choice.next_rows) == (128, 256)
    assert choice.next_bytes > 521 * MIB
    assert step.measured == [1, 4096, 64, 256, 128]


def test_size_that_fails_verification_is_replaced():
    """The full window needs 20 MiB more than a short one: 128 rows then exceed the budget."""
    step = Step(lambda rows: (30 + 2 * rows) * MIB, budget=300 * MIB, further=20 * MIB)
    assert step.search(4096).rows == 64
    assert step.verified == [128, 64]


def test_row_that_does_not_fit_is_reported_with_its_need():
    step = Step(lambda rows: 40 * MIB, budget=30 * MIB)
    with pytest.raises(DoesNotFit) as caught:
        step.search(64)
    assert caught.value.need == MemoryNeed(40 * MIB)
    assert step.measured == [1]


def test_row_that_fits_only_in_a_short_window_is_reported():
    step = Step(lambda rows: rows * 20 * MIB, budget=30 * MIB, further=15 * MIB)
    with pytest.raises(DoesNotFit) as caught:
        step.search(64)
    assert caught.value.need == MemoryNeed(35 * MIB)


# Up to this much more or less than the line: what two runs of one step were seen to differ by.
NOISE = 2 * MIB


@given(
    largest=st.integers(1, 100_000),
    fixed=st.integers(NOISE, 4096 * MIB),
    per_row=st.integers(0, 512 * MIB),
    noise=st.lists(st.integers(-NOISE, NOISE), min_size=18, max_size=18),
    above_one_row=st.integers(0, 64 * 1024 * MIB),
)
def test_the_choice_is_the_largest_that_fits(largest, fixed, per_row, noise, above_one_row):
    """For every line with noise, and in at most as many measurements as bisecting would take."""
    candidates = candidate_sizes(largest)

    def need(rows):
        return fixed + per_row * rows + noise[candidates.index(rows)]

    step = Step(need, budget=need(1) + above_one_row)
    choice = step.search(largest)
    fitting = [rows for rows in candidates if need(rows) <= step.budget]
    monotone = [rows for rows in candidates[: len(fitting)] if rows in fitting]
    if monotone == fitting:  # noise may let a size fail whose next one fits
        assert choice.rows == fitting[-1]
    assert need(choice.rows) <= step.budget
    assert len(step.measured) == len(set(step.measured)) <= 8
