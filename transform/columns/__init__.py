"""Raw columns: dense tensors of them, the ones that `derive` makes, and the steps of a number.

May use `spec`, `scale`, `analyzers` and what is below.
"""
