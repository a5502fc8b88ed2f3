"""What the other packages share; internal. It imports none of them.

feature_layout.py  the names and positions of packed columns: Transform writes, the trainer reads
atomic_files.py    files that are replaced as a whole
nearest.py         what a misspelt name was probably meant to be

Importing it needs pydantic alone.
"""
