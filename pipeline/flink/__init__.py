"""A Flink cluster on this machine: its memory, its processes, and what it reports.

May use `common`.
"""
