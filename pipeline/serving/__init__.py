"""A pushed model on a server: KServe and Vertex manifests, requests, and a check of the answers.

May use `targets`, `run` and what is below them.
"""
