"""Export a run to a tracking server: its settings, metrics, curves, files and model."""
