"""Run a model in stages on several devices, and recompute activations.

May import `window` and the packages below it.
"""
