"""Clients of Kubeflow and Vertex: connections with limits, runs, schedules, readable errors.

They do not depend on the pipeline's graph or configuration; `targets` submits with them.
"""
