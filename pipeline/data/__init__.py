"""The files that a path names, their first rows, and the ExampleGen that reads them.

May import `config` and `common`.
"""
