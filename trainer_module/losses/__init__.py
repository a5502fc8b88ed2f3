"""Losses as weighted sums over rows, which micro-batches and replicas can add up.

May use `common`.
"""
