"""`TrainingLoop`: epochs, evaluation, checkpoints, and the actions between them.

May use `model` and what is below it.
"""
