"""What a run reports: its progress, its records, its trials, its summary.

May import `config` and `common`.
"""
