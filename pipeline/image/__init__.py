"""The container image that a cluster's nodes and Beam's workers run: its file, context and tools.

Nothing here knows what a node is: `targets` runs nodes in an image by what `builders` knows.
"""
