"""One pass over the data: moments, order, frequencies, each for all columns at once.

What they find is kept in the transform graph (`fitted`). May use `block` and `compat`.
"""
