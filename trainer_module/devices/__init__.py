"""Strategies; devices, threads and memory of a process; connections between the workers of a job.

May import `common`.
"""
