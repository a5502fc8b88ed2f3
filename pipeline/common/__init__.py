"""Helpers for every room: the error of a configuration, formats, output files, fingerprints.

Uses no other room.
"""
