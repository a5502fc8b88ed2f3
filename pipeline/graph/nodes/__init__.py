"""The built-in nodes: one file with one `NODE` each, named after the member of `NodeName`."""
