"""The gradient and the update of one optimizer step, without a side effect.

    micro_batch -> accumulation -> update        spec: what they have in common

It knows neither stages nor parameter servers. May use `checks` and what is below it.
"""
