"""What every room may use: the error of a configuration, formats, whole files, fingerprints.

Uses no other room.
"""
