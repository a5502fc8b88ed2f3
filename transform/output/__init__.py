"""What Transform writes, packed, and what became of each column, read back from its graph.

May use every other room.
"""
