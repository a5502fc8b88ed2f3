"""Training on large batches in plain TensorFlow: exact windows of micro-batches on any strategy.

`__init__.pyi` lists the public names by use. Each is imported on first use, so that reading a
configuration (`from trainer_module import TrainerConfig`) does not wait for TensorFlow. All other
modules are internal: their names may change in any release.
"""

from __future__ import annotations

from importlib.metadata import version

import lazy_loader

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    return version("tfx-largebatch") if name == "__version__" else _import_name(name)
