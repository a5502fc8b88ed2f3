"""The README's plain TensorFlow programs run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import tensorflow as tf

import trainer_module

README = Path(trainer_module.__file__).parent / "README.md"


def test_its_programs_run(monkeypatch, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    plain = [block for block in blocks if "parameter_server" not in block]  # tests/distributed
    loop, centralised, staged = plain
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 8)).astype("float32")
    labels = features.sum(1, keepdims=True)
    scope = {"dataset": tf.data.Dataset.from_tensor_slices((features, labels))}
    exec(loop, scope)
    assert scope["result"].steps == 6
    monkeypatch.chdir(tmp_path)
    exec(staged, scope)
    assert Path("model.keras").exists()
    keras = scope["keras"]
    scope["model"] = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    exec(centralised, scope)
    loop = trainer_module.TrainingLoop(scope["step"], scope["dataset"].batch(256), epochs=1)
    assert loop.fit().steps == 2
