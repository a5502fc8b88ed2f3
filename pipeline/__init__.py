"""The TFX pipeline: its typed configuration, its graph, and where it runs.

Its rooms, from the top floor to the ground:

* `cli`: `python -m pipeline ...`.
* `targets`: Kubeflow and Vertex; `image`: the container image that they run.
* `run`: the graph on this machine, with a log file; the pushed model on raw rows.
* `preflight`: everything that can be known to be wrong before anything expensive runs.
* `features`: a `features:` section from data, and what became of it.
* `report`: progress, records, trials and the summary of a run.
* `engines`: where Beam runs; `flink`: a Flink cluster on this machine.
* `graph`: one function that builds the graph for every target.
* `data`: the files that a path names, a look at them, and the ExampleGen that reads them.
* `config`: one YAML file as frozen pydantic models, and what is wrong with it.

`PipelineConfig`, `load_config` and `create_pipeline` are imported on first use, so that `--help`
answers at once: TFX alone takes ten seconds to import.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainer_module.common.extras import load

# Importing tensorflow_transform sets TF_USE_LEGACY_KERAS=1 where nothing is set, and so decides
# what `tf.keras` is for the whole process and its children; the value set here, first, wins.
# A value that is there already is the user's; `run` tells of it where it is not 0.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")

if TYPE_CHECKING:
    from pipeline.config.config import PipelineConfig
    from pipeline.config.config_file import load_config
    from pipeline.graph.build import create_pipeline

_HOMES = {
    "PipelineConfig": "pipeline.config.config",
    "load_config": "pipeline.config.config_file",
    "create_pipeline": "pipeline.graph.build",
}

__all__ = ["PipelineConfig", "create_pipeline", "load_config"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return load(_HOMES[name], name, extra="pipeline")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
