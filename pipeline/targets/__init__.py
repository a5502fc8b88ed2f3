"""Compile a pipeline for a target and submit it.

Contains the capabilities of each target, the compiled file and its parameters, and the entry points
that run in its containers. A target is one file: the fields of its profile, what it cannot do, and
what TFX's compiler omits.
"""
