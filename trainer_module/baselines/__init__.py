"""Baselines of a model: a constant and a linear prediction, evaluated on the same rows.

May use `model` and what is below it.
"""
