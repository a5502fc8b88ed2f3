"""The TFX pipeline: its typed configuration, its graph, and where it runs.

Its rooms, from the top floor to the ground:

* `cli`: `python -m pipeline ...`.
* `targets`: Kubeflow and Vertex; `image`: the container image that they run.
* `run`: the graph on this machine, with a log file; the pushed model on raw rows.
* `preflight`: everything that can be known to be wrong before anything expensive runs.
* `features`: a `features:` section from data, and what became of it.
* `report`: progress, records, trials and the summary of a run.
* `engines`: where Beam runs; `flink`: a Flink cluster on this machine.
* `graph`: the graph for every target: our nodes and the user's.
* `data`: the files that a path names, a look at them, and the ExampleGen that reads them.
* `config`: one YAML file as frozen pydantic models, and what is wrong with it.

`__init__.pyi` lists the public names. Each is imported on first use, so that `--help` answers at
once: TFX alone takes ten seconds to import.
"""

from __future__ import annotations

import os

from trainer_module.common.extras import attach_stub

# Importing tensorflow_transform sets TF_USE_LEGACY_KERAS=1 where nothing is set, and so decides
# what `tf.keras` is for the whole process and its children; the value set here, first, wins.
# A value that is there already is the user's; `run` prints a note if it is not 0.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__, extra="pipeline")
