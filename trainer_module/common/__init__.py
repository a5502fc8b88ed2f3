"""Shared helpers: names and nearest names, files, object descriptions, code digests.

Imports no other package of the trainer.
"""
