"""A model in stages on several devices, and activations that are computed again.

May use `window` and what is below it.
"""
