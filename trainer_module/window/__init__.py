"""The gradient of one optimizer step: losses as sums, micro-batches, and the checks of their rows.

May use `devices` and `common`.
"""
