"""Several workers against one process: the exactness matrix, rows, steps and evaluation.

Reference of the matrix: tests/trainer_module/support/exactness.py, a full batch on one device, with
its tolerances. Reference of all else: the same in this process.
"""

from __future__ import annotations

import itertools

import checks
import numpy as np
import pytest
from exactness import SELECTION

pytestmark = pytest.mark.distributed


def joined(parts):
    return list(itertools.chain.from_iterable(parts))


LAYOUTS = [(2, 1), (2, 2), (3, 1)]  # workers, devices of each


@pytest.mark.parametrize(("layout", "first"), [((2, 1), 0), ((2, 2), 3), ((3, 1), 6)])
def test_the_exactness_matrix_on_several_workers(several, layout, first):
    for worker in several(*layout):
        assert worker["replicas"] == layout[0] * layout[1]
        found = worker[f"matrix:{first}:9"]
        assert set(found) == {str(cell) for cell in SELECTION[first::9]}
        assert {cell: why for cell, why in found.items() if why} == {}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_row_reaches_one_replica_of_the_same_global_batches(
    several, folders, one_process, layout
):
    """Also where workers have no row of the last batch, 101 % 40 % 7: nothing hangs."""
    for folder, batch in itertools.product(folders.values(), (7, 40)):
        name = f"seen:{folder}:{batch}:30"
        whole = checks.done(name, one_process[1])
        workers = [worker[name] for worker in several(*layout)]
        for epoch, batches in enumerate(whole):
            for place, (rows,) in enumerate(batches):
                parts = [part for worker in workers for part in worker[epoch][place]]
                assert joined(parts) == rows  # in order: so each once, and by the same cut
                sizes = [len(part) for part in parts]
                assert len(sizes) == layout[0] * layout[1]
                assert max(sizes) - min(sizes) <= 1
            everything = [row for (rows,) in batches for row in rows]
            assert sorted(everything) == list(range(101))
        assert whole[0] != whole[1]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_metrics_are_of_all_rows_and_the_same_on_each_worker(several, folders, one_process, layout):
    """Reference: one device. Tolerance 1e-6 relative: sums of float32 in another order."""
    name = f"evaluation:{folders[3]}"
    expected, again = checks.done(name, one_process[1])
    assert expected == again
    assert set(expected) == {"loss", *checks.METRICS}
    first, *others = (worker[name] for worker in several(*layout))
    assert all(other == first for other in others)
    for found in first:  # also when it is called again
        assert found == pytest.approx(expected, rel=1e-6)


def test_batches_that_each_worker_has_whole_are_cut_too(several, one_process):
    """Reference: one device. Tolerance 2e-5 relative, float32 and Adam."""
    weights, losses = checks.done("whole_batches", one_process[1])
    for worker in several(2, 1):
        found, found_losses = worker["whole_batches"]
        assert found_losses == pytest.approx(losses, rel=2e-5)
        for value, right in zip(found, weights, strict=True):
            np.testing.assert_allclose(value, right, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_of_rows_are_those_of_one_process(several, one_process, layout):
    """Of its rows on each replica, and a mean over all rows on all. Tolerance 1e-5, float32."""
    expected_rows, expected_means = checks.done("row_gradients", one_process[1])
    workers = [worker["row_gradients"] for worker in several(*layout)]
    for place, (rows,) in enumerate(expected_rows):
        found = joined(joined(of_rows[place]) for of_rows, _ in workers)
        np.testing.assert_allclose(found, rows, rtol=1e-5, atol=1e-6)
    for place, (mean,) in enumerate(expected_means):
        for found in joined(means[place] for _, means in workers):
            np.testing.assert_allclose(found, mean, rtol=1e-5, atol=1e-6)


def test_data_that_holds_another_value_on_one_worker_is_refused(several):
    for worker in several(2, 1):
        message = worker["other_mean"]
        assert "the workers differ in their program" in message
        assert "data.2 Map." in message


def test_each_worker_names_the_replica_that_is_not_finite(several):
    """By each worker, whichever has the row."""
    for workers, devices in LAYOUTS:
        messages = {worker["not_finite"] for worker in several(workers, devices)}
        assert len(messages) == 1
        assert f"is not finite on replica {workers * devices - 1} (loss nan)" in messages.pop()
