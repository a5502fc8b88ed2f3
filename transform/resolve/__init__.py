"""A spec against the columns there are: which are selected, of which type, under which names.

No TensorFlow is needed but for `derive`. May use `analyzers`, `columns` and `spec`.
"""
