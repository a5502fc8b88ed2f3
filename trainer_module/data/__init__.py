"""Read examples as global batches: shuffling, exact positions, the layout of packed features.

May import `config` and the packages below it.
"""
