"""One YAML file as frozen pydantic models, and what is said of a wrong one.

Reading it loads neither TensorFlow nor TFX. May use `engines` and what is below it.
"""
