"""Where a pipeline is deployed to: what a target takes, what it cannot do, and its compiled file.

A target is one file: its profile's fields, what is refused for it, and what TFX's own compiler does
not say as the target needs it.
"""
