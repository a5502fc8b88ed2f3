"""Raw columns: their types, dense tensors of them, and the ones that `derive` makes.

May use `spec`.
"""
