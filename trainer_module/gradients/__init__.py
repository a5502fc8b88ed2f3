"""Compute gradients of single rows and of inputs in bounded memory.

May import `window` and the packages below it.
"""
