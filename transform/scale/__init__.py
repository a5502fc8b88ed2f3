"""Numbers: imputed, clipped and scaled, those of all groups at once.

May use `resolve` and what is below it.
"""
