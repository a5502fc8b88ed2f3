"""Clients of Kubeflow and Vertex: connections with limits, runs, readable errors.

They do not depend on the pipeline's graph or configuration; `targets` submits with them.
"""
