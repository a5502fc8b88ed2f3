"""The steps of a scaled column: clip, a chain's function, impute, scale; for all groups at once.

May use `columns` and what is below it.
"""
