"""Compute baselines of a model: a constant and a linear prediction, evaluated on the same rows.

May import `model` and the packages below it.
"""
