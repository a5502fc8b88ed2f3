"""Asynchronous training: variables on servers, exact windows on workers, a chief that drives.

May use `step` and what is below it.
"""
