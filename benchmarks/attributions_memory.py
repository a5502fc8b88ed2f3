"""Peak memory of InputGradients as the rows grow: 0.5 and 2 million against 50,000.

The executor explains 2,000 of the raw rows, as `explain: {rows: 2000}` does, with the taxi model
and Beam in memory. What is compared is the most resident memory of its process while it runs (the
kernel's high-water mark `VmHWM`, reset before): with TensorFlow, Beam and TFX in it. The rows are
those of the taxi example's eval split over and over, each time with other timestamps, as Parquet in
row groups of 65,536 rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._node_costs import node_costs
from benchmarks._result import memory_growth
from benchmarks._taxi import FOLDER, read_rows
from benchmarks._transform import peak_memory
from benchmarks.evaluation import latest

SIZES = (50_000, 500_000, 2_000_000)
ROW_GROUP = 65_536
EXPLAINED = 2_000


def main() -> None:
    """Measures each number of rows in a separate process, up and down."""
    parser = _report.parser(__file__, rounds=1)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=SIZES, help="the first is compared with"
    )
    arguments = parser.parse_args()
    sizes, rounds = ((3_000, 6_000), 1) if arguments.quick else (arguments.rows, arguments.runs)
    place = FOLDER / "explained"
    node_costs(f"output.folder={place}", "training.epochs=1", f"explain.rows={EXPLAINED}")
    split = latest(place / "artifacts" / "ArrowExampleGen" / "examples") / "Split-eval"
    model = latest(place / "artifacts" / "Trainer" / "model")
    peaks: dict[int, list[float]] = {size: [] for size in sizes}
    for index in range(rounds):
        for size in sizes if index % 2 == 0 else reversed(sizes):
            with tempfile.TemporaryDirectory() as folder:
                in_own_process(write_rows, f"{split}/*.parquet", folder, size)
                peaks[size].append(in_own_process(explain, folder, str(model)))
            print(f"{size:,} rows: {peaks[size][-1] / 1e6:,.0f} MB", flush=True)
    rows = memory_growth("peak memory, {rows}", peaks)
    _report.publish(__file__, rows, quick=arguments.quick)


def write_rows(pattern: str, folder: str, rows: int) -> None:
    """Writes so many rows, different ones, into `Split-eval` of the folder."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = read_rows(pattern).combine_chunks()
    name = "trip_start_timestamp"
    place = table.schema.get_field_index(name)
    lists = table.column(name).chunk(0)
    path = Path(folder) / "Split-eval" / "rows.parquet"
    path.parent.mkdir()
    with pq.ParquetWriter(path, table.schema, use_compliant_nested_type=False) as writer:
        waiting: list[pa.Table] = []
        for number in range(-(-rows // table.num_rows)):
            later = pc.add(lists.values, number)
            times = pa.LargeListArray.from_arrays(lists.offsets, later).cast(lists.type)
            copy = table.set_column(place, table.schema.field(place), times)
            waiting.append(copy.slice(0, rows - number * table.num_rows))
            if sum(map(len, waiting)) >= ROW_GROUP:
                whole = pa.concat_tables(waiting)
                writer.write_table(whole.slice(0, ROW_GROUP), ROW_GROUP)
                waiting = [whole.slice(ROW_GROUP)]
        writer.write_table(pa.concat_tables(waiting), ROW_GROUP)


def explain(examples: str, model: str) -> int:
    """Runs the executor on a folder with `Split-eval`; returns the peak in bytes."""
    from tfx.components.util import examples_utils
    from tfx.proto import example_gen_pb2
    from tfx.types import artifact_utils, standard_artifacts

    from components import Attributions
    from components.input_gradients.executor import Executor
    from pipeline.engines.engine import BeamConfig

    rows, trained = standard_artifacts.Examples(), standard_artifacts.Model()
    rows.uri, trained.uri = examples, model
    rows.split_names = artifact_utils.encode_split_names(["eval"])
    examples_utils.set_payload_format(
        rows,
        example_gen_pb2.PayloadFormat.FORMAT_PARQUET,  # type: ignore[attr-defined]
    )
    found = Attributions()
    found.uri = f"{examples}/attributions"
    context = Executor.Context(beam_pipeline_args=[*BeamConfig().pipeline_args()])
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
    Executor(context).Do(
        {"examples": [rows], "model": [trained]},
        {"attributions": [found]},
        {"rows": EXPLAINED, "steps": 50, "split": "eval"},
    )
    return peak_memory()


if __name__ == "__main__":
    main()
