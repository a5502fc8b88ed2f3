"""Compute gradients of single rows, tasks and inputs in bounded memory.

May import `window` and the packages below it.
"""
