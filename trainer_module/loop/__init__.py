"""Run epochs, evaluation, checkpoints and callbacks (`TrainingLoop`).

May import `model` and the packages below it.
"""
