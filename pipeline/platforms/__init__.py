"""Clients of Kubeflow and Vertex: connections with limits, runs, schedules, readable errors.

They know nothing of the pipeline's graph or configuration: `targets` submits by them.
"""
