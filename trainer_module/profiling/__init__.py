"""Where the time of a step goes: phases, operations by layer, hints.

May import `loop`, `data`, `step` and the packages below them.
"""
