"""`train`: a plan and data -> a trained model, as `run_fn` and each trial of a search do it.

May use every room but `tfx`.
"""
