"""`python -m pipeline ...`: arguments, and what they call.

May use every other room; each is imported when its command runs.
"""
