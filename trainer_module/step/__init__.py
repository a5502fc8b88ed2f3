"""The `Step` protocol of training loops, `TrainStep` for one optimizer step, and their reports.

May import `window` and the packages below it.
"""
