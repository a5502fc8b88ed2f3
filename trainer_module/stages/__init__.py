"""A model in stages on several devices, and activations that are computed again.

May use what is below it: `devices` and `common`.
"""
