"""Compute gradients per example, and of outputs with respect to inputs, in bounded memory.

May import `window` and the packages below it.
"""
