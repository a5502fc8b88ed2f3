"""Find a micro-batch size that fits into memory, by steps in child processes.

May import `model` and the packages below it.
"""
