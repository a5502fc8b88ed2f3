"""InputGradients: which columns a model's predictions depend on, over a sample of a data set.

component.py   the node: inputs, outputs, parameters, the type of its output
executor.py    a sample of the rows of a split by their hashes, their attributions, the log
summary.py     summary.json: mean absolute attributions per column
"""

MOST_ROWS = 20_000
MOST_STEPS = 1_000
