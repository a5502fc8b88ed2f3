"""Where Beam runs: one model per engine, its pipeline options, and what must be there for it.

Table of contents:

* `presets`: `beam:` in the YAML, and the pipeline options that it stands for.
"""
