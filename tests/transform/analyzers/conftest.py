"""A saved graph with kept numbers, as Transform leaves one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Any]], str]:
    """`saved(function)`: the folder of a transform graph that computes what it returns."""
    import tensorflow as tf

    def save(function: Callable[[], Any]) -> str:
        module = tf.Module()
        module.transform_fn = tf.function(function).get_concrete_function()  # type: ignore
        folder = tmp_path_factory.mktemp("saved")
        tf.saved_model.save(module, str(folder / "transform_fn"))
        return str(folder)

    return save
