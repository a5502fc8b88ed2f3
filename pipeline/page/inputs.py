"""What the sections of a page read: a run's record and its artifacts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.json_types import JsonObject
from pipeline.config.config import PipelineConfig
from pipeline.graph.node_names import NodeName
from pipeline.page.sampled_rows import NoSample, SampledRows, sample_of
from pipeline.report.records import NodeRecord, find_output
from pipeline.report.run_record import RunRecord


@dataclass(frozen=True)
class RunInputs:
    """A run, and the runs that it is compared with.

    Attributes:
        config: The configuration of the run.
        record: Its record: its folder, its summary.
        nodes: Its finished nodes and their artifacts, by name.
        previous: The run before; None if this one is the first.
        blessed: The latest run before whose model was blessed; None if there is none.
    """

    config: PipelineConfig
    record: RunRecord
    nodes: Mapping[str, NodeRecord]
    previous: RunRecord | None = None
    blessed: RunRecord | None = None

    @property
    def summary(self) -> JsonObject:
        """The content of the run's summary.json."""
        return self.record.summary

    def artifact(self, node: NodeName, key: str) -> Path | None:
        """Return the folder of a node's output; None if the run has none or it was deleted."""
        output = find_output(self.nodes, node, key)
        folder = Path(output.uri) if output else None
        return folder if folder is not None and folder.is_dir() else None

    @functools.cached_property
    def sample(self) -> SampledRows | NoSample:
        """A sample of the evaluated rows with predictions, or why there is none."""
        try:
            return sample_of(self.config, self.artifact)
        except NoSample as reason:
            return reason
