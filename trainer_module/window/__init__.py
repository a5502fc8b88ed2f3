"""Compute the gradient and the update of one optimizer step, without side effects.

    micro_batch -> accumulation -> update        spec: the types that they share

This package does not depend on stages or parameter servers. It may import `checks` and the
packages below it.
"""
