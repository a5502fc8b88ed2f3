"""Train a model from a plan and data (`train`), for `run_fn` and each trial of a search.

May import every package but `tfx`.
"""
