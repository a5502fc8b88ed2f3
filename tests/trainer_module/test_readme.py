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
    plain = [block for block in blocks if "tfx.components" not in block]
    plain = [block for block in plain if "parameter_server" not in block]  # tests/distributed
    plain, centralised, staged = plain[:2], plain[2], plain[3:]
    assert len(staged) == 1
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 8)).astype("float32")
    labels = features.sum(1, keepdims=True)
    scope = {"dataset": tf.data.Dataset.from_tensor_slices((features, labels))}
    exec(plain[0], scope)
    assert scope["result"].steps == 6
    monkeypatch.chdir(tmp_path)
    exec(staged[0], scope)
    assert Path("model.keras").exists()
    # Another program is the body of someone else's step, on one device.
    scope["model"] = tf_model = scope["keras"].Sequential(
        [scope["keras"].Input((8,)), scope["keras"].layers.Dense(1)]
    )
    scope["optimizer"] = scope["keras"].optimizers.SGD(0.05)
    scope["optimizer"].build(tf_model.trainable_variables)
    exec(plain[1], scope)
    losses = [float(scope["step"](features, labels)) for _ in range(20)]
    assert losses[-1] < 0.1 * losses[0]
    exec(centralised, scope)
    loop = trainer_module.TrainingLoop(scope["step"], scope["dataset"].batch(256), epochs=1)
    assert loop.fit().steps == 2
