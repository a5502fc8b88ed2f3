"""The page of a run, `report.html`, and of all runs, `index.html`.

Each is one file without any outside resource. A section (`answers`, `evaluation`, `features`,
`data`, `training`) turns what a run found into elements (`elements.py`), and `render.py` turns
elements into HTML.
"""
