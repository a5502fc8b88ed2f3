# TensorFlow builds its public modules lazily and ships no stubs; those that pyright brings know a
# part of it and call the rest an error. Here every name of TensorFlow is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
