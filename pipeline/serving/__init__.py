"""A pushed model on a server: KServe and Vertex manifests, requests, and a check of the answers.

May import `targets`, `run` and the packages below them.
"""
