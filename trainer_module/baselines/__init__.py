"""What a model is to be better than: a constant and a linear model, judged on the same rows.

May use `model` and what is below it.
"""
