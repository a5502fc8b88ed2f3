"""The page of a run, `report.html`, and of a NormalizationValidator, `normalization.html`.

Each is one file without any outside resource.

A section (`sections/`) turns the artifacts of a run into elements (`elements.py`), and `render.py`
turns elements into HTML. May import `features`, `report`, `graph`, `config` and `common`.
"""
