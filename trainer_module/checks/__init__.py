"""Check models, optimizers, losses and batches, and report errors and warnings.

May import `losses`, `options`, `devices` and `common`.
"""
