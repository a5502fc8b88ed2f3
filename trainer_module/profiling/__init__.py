"""Where the time of a step goes: phases, and peak memory.

May import `loop`, `data`, `step` and the packages below them.
"""
