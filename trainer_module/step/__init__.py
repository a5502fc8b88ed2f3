"""`Step`, what a loop sees; `TrainStep`, one optimizer step on a strategy; and their reports.

May use `window` and what is below it.
"""
