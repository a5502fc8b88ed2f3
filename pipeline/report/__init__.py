"""What a run does and has done: its progress, its records, its trials, its summary.

May use `config` and `common`.
"""
