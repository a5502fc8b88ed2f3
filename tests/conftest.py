"""What holds for every test: the environment that TensorFlow reads while it is imported."""

from __future__ import annotations

import os

# Before any test module imports TensorFlow: importing tensorflow_transform sets
# TF_USE_LEGACY_KERAS=1 where nothing is set, and `import keras` and tf.keras would then differ.
os.environ["TF_USE_LEGACY_KERAS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
