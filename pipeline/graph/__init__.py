"""The graph of nodes, the same for every target: one file per node, which `table` lists.

May use `data` and what is below it.
"""
