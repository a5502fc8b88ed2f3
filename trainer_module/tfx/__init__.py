"""TFX's doors: `run_fn`, `tuner_fn`, Transform's output and the export.

The only room that knows TFX and TFT. May use every other room; none uses it.
"""
