"""The command line: `python -m pipeline ...` and `tfx-largebatch ...`.

May use every other room. A command imports what it needs when it runs, so that `--help` is fast.
"""
