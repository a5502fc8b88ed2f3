"""Export a run to a tracking server: its metrics, summary and page."""
