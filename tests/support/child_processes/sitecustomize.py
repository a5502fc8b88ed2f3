"""Python imports this at the start of each child process of the tests (see tests/conftest.py)."""

import gc

gc.set_threshold(50_000, 10, 10)
