"""Runs a Transform executor on the data of `_transform_data`, each time in a new process.

Time and memory of one run would be those of the runs before it too: what TensorFlow, Beam and the
allocator keep. Imports do not count, tracing and building the Beam graph do.
"""

from __future__ import annotations

import importlib
import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._measure import in_own_process

BEAM_ARGS = ["--runner=FnApiRunner"]
FIRST_ROWS = 64


class Work(NamedTuple):
    """What the executor is to do.

    Attributes:
        data: Folder with `Split-train/*` and `schema/schema.pbtxt`.
        function: Dotted path of a `preprocessing_fn`.
        config: Its `custom_config`.
        statistics: TFX's default is True: statistics of the columns before and after.
        keep: Folder for the output, None: it is deleted.
        columns: Whether it is our executor, on Parquet; else it is TFX's, on tf.Examples.
    """

    data: str
    function: str
    config: dict[str, Any]
    statistics: bool = False
    keep: str | None = None
    columns: bool = False


class Run(NamedTuple):
    """What it took, and a sample of what was written."""

    seconds: float  # wall time of the executor
    cpu_seconds: float  # of all its threads
    peak: int  # bytes: the process' high-water mark
    first: np.ndarray  # float32 [FIRST_ROWS, n]: float outputs side by side, in order of their name


def ours(data: str, *groups: Mapping[str, Any], statistics: bool = False, **spec: Any) -> Work:
    """Our `preprocessing_fn` with these groups of the feature specification.

    Without the mask of missing values, unless `spec` asks for it: the baselines write none either.
    """
    features = {"groups": list(groups), "missing_mask": False, **spec}
    return Work(data, "transform.preprocessing_fn", {"features": features}, statistics)


def baseline(data: str, name: str, *, statistics: bool = False, **config: Any) -> Work:
    """A function of `_transform_baselines`."""
    return Work(data, f"benchmarks._transform_baselines.{name}", config, statistics)


def in_turns(works: dict[str, Work], *, rounds: int) -> dict[str, list[Run]]:
    """Runs A B C, C B A, A B C, ... and says what each took."""
    found: dict[str, list[Run]] = {name: [] for name in works}
    for index in range(rounds):
        for name in works if index % 2 == 0 else reversed(works):
            run = in_own_process(execute, works[name])
            found[name].append(run)
            print(
                f"{name}: {run.seconds:.1f} s, {run.cpu_seconds:.1f} s of processors, "
                f"{run.peak / 1e6:,.0f} MB at most",
                flush=True,
            )
    return found


def check_same_output(runs: Sequence[Run], *, tolerance: float) -> None:
    """Stops where two runs wrote different numbers: they did not do the same work."""
    for run in runs[1:]:
        worst = np.max(np.abs(run.first - runs[0].first))
        if not worst <= tolerance:
            raise SystemExit(f"the outputs differ by up to {worst}: no comparison")


def execute(work: Work) -> Run:
    """Runs the executor in this process."""
    # Whatever the functions import is imported before the clock starts.
    from tfx.components.transform import executor

    from components.transform import executor as column_executor

    module, _, name = work.function.rpartition(".")
    getattr(importlib.import_module(module), name)
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs, properties = _artifacts(work, work.keep or folder)
        program = column_executor.Executor if work.columns else executor.Executor
        context = program.Context(
            beam_pipeline_args=list(BEAM_ARGS), tmp_dir=f"{folder}/tmp", unique_id="1"
        )
        started, cpu_started = time.perf_counter(), time.process_time()
        program(context).Do(inputs, outputs, properties)
        seconds = time.perf_counter() - started
        cpu_seconds = time.process_time() - cpu_started
        return Run(seconds, cpu_seconds, peak_memory(), _first_rows(work.keep or folder))


def peak_memory() -> int:
    """The process' high-water mark of resident memory, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def _artifacts(work: Work, folder: str) -> tuple[Any, Any, dict[str, Any]]:
    """What a TFX pipeline hands to the executor."""
    from tfx.components.util import examples_utils
    from tfx.types import artifact_utils, standard_artifacts

    from components.transform import executor as column_executor

    def artifact(kind: Any, uri: str) -> list[Any]:
        found = kind()
        found.uri = uri
        Path(uri).mkdir(parents=True, exist_ok=True)
        return [found]

    examples = artifact(standard_artifacts.Examples, work.data)
    examples[0].split_names = artifact_utils.encode_split_names(["train"])
    if work.columns:
        examples_utils.set_payload_format(examples[0], column_executor.FORMAT_PARQUET)
    inputs = {
        "examples": examples,
        "schema": artifact(standard_artifacts.Schema, f"{work.data}/schema"),
    }
    outputs = {
        "transform_graph": artifact(standard_artifacts.TransformGraph, f"{folder}/graph"),
        "transformed_examples": artifact(standard_artifacts.Examples, f"{folder}/examples"),
        "updated_analyzer_cache": artifact(standard_artifacts.TransformCache, f"{folder}/cache"),
    }
    if work.statistics:
        kinds = {
            "pre_transform_schema": standard_artifacts.Schema,
            "pre_transform_stats": standard_artifacts.ExampleStatistics,
            "post_transform_schema": standard_artifacts.Schema,
            "post_transform_stats": standard_artifacts.ExampleStatistics,
            "post_transform_anomalies": standard_artifacts.ExampleAnomalies,
        }
        outputs |= {key: artifact(kind, f"{folder}/{key}") for key, kind in kinds.items()}
    properties = {
        "preprocessing_fn": work.function,
        "custom_config": json.dumps(work.config),
        "disable_statistics": int(not work.statistics),
    }
    return inputs, outputs, properties


def _first_rows(folder: str) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import tensorflow as tf
    import tensorflow_transform as tft

    split = Path(folder) / "examples" / "Split-train"
    if tables := sorted(split.glob("*.parquet")):
        batch = next(pq.ParquetFile(tables[0]).iter_batches(FIRST_ROWS))
        parsed = dict(zip(batch.schema.names, batch.columns, strict=True))
        names = [n for n in sorted(parsed) if pa.types.is_floating(parsed[n].type.value_type)]
        dense = [parsed[name].flatten().to_numpy() for name in names]
        size = batch.num_rows
    else:
        spec = tft.TFTransformOutput(f"{folder}/graph").transformed_feature_spec()
        rows = (
            tf.data.TFRecordDataset(sorted(map(str, split.glob("*.gz"))), "GZIP")
            .take(FIRST_ROWS)
            .batch(FIRST_ROWS)
            .get_single_element()
        )
        parsed = tf.io.parse_example(rows, spec)
        size = len(rows)
        dense = [parsed[name] for name in sorted(parsed) if parsed[name].dtype == tf.float32]
    return np.concatenate(
        [np.reshape(x, [size, -1]) for x in dense] or [np.zeros([size, 0])], axis=1
    )
