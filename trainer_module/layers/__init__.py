"""Keras layers with fewer parameters or operations, for models of users.

May import `common` alone.
"""
