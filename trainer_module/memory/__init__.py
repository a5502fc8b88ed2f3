"""The largest micro-batch that fits, measured in child processes.

May use `model` and what is below it.
"""
