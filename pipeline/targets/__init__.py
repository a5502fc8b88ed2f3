"""Compile a pipeline for a target, and submit it; the entry points that run in its containers.

`kubeflow` and `vertex` correct what TFX's compiler writes; `refusals` is what they cannot do.
"""
