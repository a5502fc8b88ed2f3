"""Steps that apply a graph, in workers that outlive an attempt of their job or have several splits.

A step keeps its graph in the worker's process, and TFT asserts that it is never asked for another
folder's (`_RunMetaGraphDoFn.process`, in 1.16 and 1.21). On Flink, where a job is started again,
the second attempt writes the graph into another folder: a busy machine on which Flink lost sight of
a TaskManager ended in "AssertionError".

TFT has a step per split, and each loads the graph. Here, all steps of a process share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apache_beam.utils.shared import Shared
from tensorflow_transform.beam import impl

_LOADED = Shared()


class _ApplyGraph(impl._RunMetaGraphDoFn):
    """Loads the graph of the folder that it is asked for. Workers import it by its name."""

    def process(self, batch: Any, saved_model_dir: str) -> Iterator[Any]:
        known = getattr(self, "_graph_state", None)
        if known is None or known.saved_model_dir != saved_model_dir:
            wanted = (sorted(self._get_input_tensor_names()), sorted(self._exclude_outputs))
            self._graph_state = _LOADED.acquire(
                lambda: self._make_graph_state(saved_model_dir), tag=(saved_model_dir, wanted)
            )
        yield from super().process(batch, saved_model_dir)


def load_graphs_by_folder() -> None:
    """Make the steps that TFT builds from now on load another folder's graph if asked for it."""
    impl._RunMetaGraphDoFn = _ApplyGraph
