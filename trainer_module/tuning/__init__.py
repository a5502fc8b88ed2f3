"""A search over the settings of a training.

May use `memory`, `loop` and what is below them.
"""
