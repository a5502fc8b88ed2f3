"""What a configuration stands for: model, optimizer, loss and metrics.

May use `data`, `step` and what is below them.
"""
