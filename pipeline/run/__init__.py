"""The graph on this machine, with a log file; the pushed model on raw rows.

May use `preflight`, `engines`, `report` and what is below them.
"""
