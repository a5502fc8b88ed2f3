"""Settings models: roles and fingerprints come from the fields, errors name the field."""

from __future__ import annotations

import re
from typing import Annotated

import numpy as np
import pytest

from trainer_module import TrainerConfig
from trainer_module.options.run_options import ClusterOptions, LoopOptions, RunLength
from trainer_module.options.settings import RUNTIME_ONLY


def test_a_new_option_is_in_the_fingerprint_unless_marked():
    for options in [TrainerConfig, LoopOptions, ClusterOptions]:

        class Extended(options):
            smoothing: float = 0.5
            threads: Annotated[int, RUNTIME_ONLY] = 2

        given = {"epochs": 1} if options is LoopOptions else {}
        added = set(Extended(**given).fingerprint()) - set(options(**given).fingerprint())
        assert added == {"smoothing"}
        assert Extended(**given).fingerprint()["smoothing"] == 0.5


def test_cluster_and_length_do_not_affect_the_result():
    assert ClusterOptions(strategy="mirrored", workers=1).fingerprint() == {}
    assert RunLength(epochs=3, steps_per_loop=5).fingerprint() == {}


def test_an_invalid_count_names_field_and_value():
    for field in ["epochs", "workers", "global_batch_size", "micro_batch_size", "intra_op_threads"]:
        for count in [0, -1, np.int64(0), True, False, 1.5, "many"]:
            with pytest.raises(ValueError, match=rf"^trainer\.{field}=") as error:
                TrainerConfig.parse({field: count})
            assert repr(count) in str(error.value)


def test_all_wrong_fields_are_named_at_once():
    wrong = {"workers": 0, "epochs": 0, "memory_budget": 0, "label_scale": "cubic"}
    with pytest.raises(ValueError, match="label_scale") as error:
        TrainerConfig.parse(wrong)
    lines = str(error.value).splitlines()
    assert sorted(line.partition("=")[0] for line in lines) == sorted(f"trainer.{n}" for n in wrong)


def test_a_wrong_type_gets_what_to_use_in_one_line():
    for values, line in [
        ({"epochs": "ten"}, "trainer.epochs='ten': use a whole number."),
        ({"model": {"hidden_units": "64,32"}}, "trainer.model.hidden_units='64,32': use a list."),
        (
            {"optimizer": {"learning_rate": "fast"}},
            "trainer.optimizer.learning_rate='fast': use a number.",
        ),
        ({"optimizer": 3}, "trainer.optimizer=3: use a mapping."),
        (
            {"model": {"hidden_unit": [3]}},
            "trainer.model.hidden_unit is not a setting: did you mean 'hidden_units'?",
        ),
        (
            {"learning_rate": 1},
            "trainer.learning_rate is not a setting: did you mean 'optimizer.learning_rate'?",
        ),
    ]:
        with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
            TrainerConfig.parse(values)
