"""The options of a training as frozen records that check themselves; no TensorFlow is imported.

May use `common`.
"""
