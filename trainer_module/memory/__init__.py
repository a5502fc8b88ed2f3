"""Find the largest micro-batch that fits, by measurements in child processes.

May import `model` and the packages below it.
"""
