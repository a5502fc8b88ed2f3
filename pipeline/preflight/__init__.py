"""Everything that can be known to be wrong before anything expensive runs.

May use `data` and what is below it.
"""
