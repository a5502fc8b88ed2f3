"""Create a `features:` section from data, and explain the features of a run.

May import `report`, `data` and the packages below them.
"""
