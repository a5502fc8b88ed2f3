"""The TFX pipeline: its typed configuration, its graph, and where it runs.

Table of contents:

* `config`: one YAML file as frozen pydantic models; `config_file` reads it, `config_errors` says
  what is wrong with it.
* `data_sources`: the files that a path names, and CSV, TFRecord and Parquet as ExampleGen nodes.
* `peek`: a look at the files first; `samples`: the rows that it reads, column by column.
* `preflight`, `preflight_rows`: everything that can be known to be wrong before anything expensive
  runs.
* `build`: one function that builds the graph for every target.
* `run`: the graph on this machine, with progress, a log file and a summary.
* `predict`: the pushed model on raw rows.
* `features_suggest`, `features_explain`: a `features:` section from data, and what became of it.
* `engines`: where Beam runs, and a Flink cluster on this machine.
* `cli`: `python -m pipeline ...`.

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
