"""A `features:` section from data, and what became of it.

May use `report`, `data` and what is below them.
"""
