"""`TrainingLoop`: epochs, evaluation, checkpoints, and the callbacks between them.

May use `model` and what is below it.
"""
