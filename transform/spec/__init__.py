"""What a user may write under `features:`, as frozen pydantic models.

Pydantic alone: parsing a spec loads no TensorFlow. Every room may use it; it uses none.
"""
