"""Workers that outlive an attempt of their job, as on Flink, where a job is started again.

A step that applies a graph keeps it in the worker's process, and TFT asserts that it is never asked
for another folder's (`_RunMetaGraphDoFn.process`, in 1.16 and 1.21). The second attempt writes the
graph again, into another folder: a busy machine on which Flink lost sight of a TaskManager ended in
"AssertionError".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorflow_transform.beam import impl


class _ApplyGraph(impl._RunMetaGraphDoFn):
    """Loads the graph of the folder that it is asked for. Workers import it by its name."""

    def process(self, batch: Any, saved_model_dir: str) -> Iterator[Any]:
        known = getattr(self, "_graph_state", None)
        if known is None or known.saved_model_dir != saved_model_dir:
            self._graph_state = self._shared_graph_state_handle.acquire(
                lambda: self._make_graph_state(saved_model_dir), tag=saved_model_dir
            )
        yield from super().process(batch, saved_model_dir)


def load_graphs_by_folder() -> None:
    """Make the steps that TFT builds from now on load another folder's graph if asked for it."""
    impl._RunMetaGraphDoFn = _ApplyGraph
