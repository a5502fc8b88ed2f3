"""The container image that a cluster's nodes and Beam's workers run: its context and its build."""
