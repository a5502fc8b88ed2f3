"""The graph of nodes, the same for every target.

May use `data` and what is below it.
"""
