"""Examples to global batches: reading, shuffling, exact positions, the layout of packed features.

May use `config` and what is below it.
"""
