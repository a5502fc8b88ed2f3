"""Asynchronous training: servers hold the variables, workers compute windows, a chief coordinates.

May import `step` and the packages below it.
"""
