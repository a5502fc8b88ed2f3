"""The files that a path names, their first rows, and the ExampleGen that reads them.

May use `config` and `common`.
"""
