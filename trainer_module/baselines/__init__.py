"""Compute baselines of a model: a constant and a linear prediction, evaluated on the same rows.

The linear model is also the start of the linear part of the default model (`linear_start`).

May import `model` and the packages below it.
"""
