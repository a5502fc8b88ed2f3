"""What the other packages share; internal. It imports none of them, and needs pydantic alone.

feature_layout.py  the names and positions of packed columns: Transform writes, the trainer reads
atomic_files.py    files that are replaced as a whole
run_warning.py     a warning about data or a model, such as floats that float32 rounds
nearest.py         what a misspelt name was probably meant to be
"""
