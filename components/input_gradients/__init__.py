"""InputGradients: which columns a model's predictions depend on, over a sample of a data set.

component.py   the node: inputs, outputs, parameters
options.py     the ranges of the parameters
executor.py    the Beam pipeline, the summary and the log
sample.py      rows of a split, and a sample by their hashes
model.py       the exported model: its signature, features of rows, the path integral
rows.py        a group of sampled rows -> one Parquet file
summary.py     summary.json: mean absolute attributions per column and slice
artifacts.py   the output type and its files
"""
