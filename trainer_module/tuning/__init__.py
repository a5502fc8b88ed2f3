"""Search for better settings of a training.

May import `memory`, `loop` and the packages below them.
"""
