"""Compile a pipeline for a target and submit it.

Holds what each target supports, the compiled file and its parameters, and the entry points that run
in its containers. A target is one file: its profile's fields, what it refuses, and what TFX's own
compiler leaves out.
"""
