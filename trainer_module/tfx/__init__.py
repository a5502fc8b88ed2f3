"""Entry points for TFX: `run_fn`, `tuner_fn`, Transform's output and the export.

The only package that imports TFX and TFT. It may import every other package; none imports it.
"""
