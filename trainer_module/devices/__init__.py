"""Strategies; devices, threads and memory of a process; how the workers of a job meet and talk.

May use `common`.
"""
