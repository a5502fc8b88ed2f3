"""One file per scaler: a `Scaler` record (scaler.py), named in table.py.

`spec` reads the records, so they are below it: a scaler may use `analyzers` and what is below it.
Reading a record loads neither TensorFlow nor NumPy.
"""
