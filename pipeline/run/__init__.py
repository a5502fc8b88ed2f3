"""Run the graph on this machine with a log file; apply the pushed model to raw rows.

May import `preflight`, `engines`, `report` and the packages below them.
"""
