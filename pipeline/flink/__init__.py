"""A Flink cluster on this machine: its memory, its processes, and what it says.

May use `common`.
"""
