"""A spec against the columns there are: which are selected, of which type, under which names.

No TensorFlow is needed but for `derive`. May use `encode` and `scale` (the records of what is in
them) and what is below.
"""
