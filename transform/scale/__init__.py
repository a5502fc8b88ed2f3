"""Numbers: imputed, clipped and scaled, those of all groups at once.

One file per scaler, with all that is known of it: a `Scaler` (scaler.py), named in table.py.
May use `analyzers` and what is below it.
"""
