"""The container image that a cluster's nodes and Beam's workers run: its file, context and tools.

This package does not depend on nodes: `targets` runs nodes in an image, with a tool of `builders`.
"""
