"""Compute gradients of single rows, tasks and inputs, and the curvature, in bounded memory.

May import `window` and the packages below it.
"""
