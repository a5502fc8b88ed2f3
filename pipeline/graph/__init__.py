"""The graph of nodes, the same for every target, and when a node's cache holds.

May use `data` and what is below it.
"""
