"""Build model, optimizer, loss and metrics from a configuration.

May import `data`, `step` and the packages below them.
"""
