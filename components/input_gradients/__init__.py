"""InputGradients: which columns a model's predictions depend on, over a sample of a data set.

component.py   the node: inputs, outputs, parameters, the type of its output
options.py     the ranges of the parameters
executor.py    the Beam pipeline, the table of rows, the log
sample.py      a sample of the rows of a split by their hashes
model.py       the exported model: its signatures, attributions of rows
summary.py     summary.json: mean absolute attributions per column and slice
"""
