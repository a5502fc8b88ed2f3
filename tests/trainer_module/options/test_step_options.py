"""StepOptions: self-validating, and the one list of what TrainStep takes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from trainer_module.options.step_options import StepOptions


def centralise(gradients, variables):
    return gradients


def test_the_fingerprint_has_each_option_that_affects_the_result():
    """Reference: written down here, so that another mark is a decision."""
    options = StepOptions(micro_batch_size=4, clip_norm=0.5)
    assert options.fingerprint() == {
        "clip_norm": 0.5,
        "clip_per_example": None,
        "batch_norm": None,
        "ema_momentum": None,
        "non_finite": "raise",
        "gradient_noise_scale": None,
        "added_losses": None,
        "transforms": [],
    }
    ghost = StepOptions(micro_batch_size=4, batch_norm="ghost").fingerprint()
    assert (ghost["batch_norm"], ghost["micro_batch_size"]) == ("ghost", 4)


def noise(gradients, variables, step, scale=0.1):
    return gradients


def test_the_fingerprint_knows_the_code_and_the_values_of_transforms():
    found = [
        StepOptions(micro_batch_size=1, transforms=tuple(given)).fingerprint()["transforms"]
        for given in (
            [],
            [centralise],
            [noise],
            [functools.partial(noise, scale=1.0)],
            [functools.partial(noise, scale=2.0)],
            [noise, centralise],
            [centralise, noise],
        )
    ]
    assert all(one not in found[:place] for place, one in enumerate(found))
    again = StepOptions(micro_batch_size=9, transforms=(centralise,)).fingerprint()
    assert again["transforms"] == found[1]


def one(gradients):
    return gradients


def three(gradients, variables, scale):
    return gradients


def test_invalid_transforms_are_rejected():
    for transforms in [centralise, "centralise", [one], [three], [None], {1: one}, {centralise}]:
        with pytest.raises(ValueError, match=r"transforms.*gradients, variables"):
            StepOptions.parse({"micro_batch_size": 1, "transforms": transforms})


def test_numpy_numbers_are_accepted():
    given: Any = {
        "micro_batch_size": np.int64(4),
        "clip_norm": np.float32(0.5),
        "ema_momentum": np.float64(0.5),
        "expected_rows": np.int32(7),
    }
    options = StepOptions.parse(given)
    assert options == StepOptions(
        micro_batch_size=4, clip_norm=0.5, ema_momentum=0.5, expected_rows=7
    )
