"""Compute losses as weighted sums over rows, which add up over micro-batches and replicas.

May import `common`.
"""
