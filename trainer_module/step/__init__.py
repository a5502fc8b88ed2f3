"""`TrainStep`: one optimizer step on a strategy, what it refuses and what it reports.

May use `window` and what is below it.
"""
