"""`beam:` of the YAML, which selects the runner of Beam, and the messages of failed Beam code.

Reading a configuration imports this package, so Beam is imported inside functions.
"""
