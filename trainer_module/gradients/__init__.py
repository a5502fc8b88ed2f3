"""Gradients as a tool: per example, and of outputs with respect to inputs, in bounded memory.

May use `window` and what is below it.
"""
