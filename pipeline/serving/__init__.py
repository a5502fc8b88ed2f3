"""A pushed model on a server: KServe and Vertex manifests, and requests."""
