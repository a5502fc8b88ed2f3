"""One YAML file as frozen pydantic models, and error messages for an invalid one.

Reading the file loads neither TensorFlow nor TFX. May import `engines` and the packages below it.
"""
