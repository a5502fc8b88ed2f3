"""The options of a training as frozen records that check their fields, without TensorFlow.

May import `common`.
"""
