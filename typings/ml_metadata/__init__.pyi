# Its package says that it is typed, but the messages of its generated modules have no types, and
# pyright calls each an error. Here every name of ml_metadata is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
