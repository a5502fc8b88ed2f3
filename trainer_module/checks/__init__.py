"""What a model, an optimizer, a loss and a batch may not be, and errors and warnings that say so.

May use `losses`, `options`, `devices` and `common`.
"""
