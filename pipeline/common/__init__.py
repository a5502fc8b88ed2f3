"""Files that are written whole.

Uses no other room.
"""
