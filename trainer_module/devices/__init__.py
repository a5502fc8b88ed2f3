"""Strategies, and the devices, threads and memory of a process.

May use `common`.
"""
