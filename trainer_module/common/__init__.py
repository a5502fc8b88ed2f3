"""What every room may use: names and their nearest, whole files, described objects, code digests.

Uses no other room.
"""
