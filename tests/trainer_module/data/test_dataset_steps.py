"""Private attributes of datasets, and the error if another TensorFlow lacks them."""

import pytest
import tensorflow as tf

from trainer_module.data import dataset_steps


class _Without:
    """Stands for a dataset of a version that lacks one attribute."""

    def __init__(self, whole, missing):
        self._whole, self._missing = whole, missing

    def __getattr__(self, name):
        if name == self._missing:
            raise AttributeError(name)
        return getattr(self._whole, name)


@pytest.mark.parametrize("missing", ["_inputs", "_functions", "_seed", "_reshuffle_each_iteration"])
def test_a_missing_private_attribute_is_an_error_with_its_name(missing, monkeypatch):
    dataset = tf.data.Dataset.range(4).shuffle(4, seed=3)
    stranger = _Without(dataset, missing)
    monkeypatch.setattr(dataset_steps, "kind_of", lambda each: "Shuffle")
    reader = {
        "_inputs": dataset_steps.reshuffles_at_once,
        "_functions": dataset_steps.random_operations,
        "_seed": dataset_steps.unseeded_shuffle,
        "_reshuffle_each_iteration": dataset_steps.has_reshuffle,
    }[missing]
    with pytest.raises(ValueError, match=f"TensorFlow {tf.__version__} has no '{missing}'"):
        reader(stranger)
