"""TFX's Evaluator by columns, against TFMA's rows: processor seconds.

TFX's executor evaluates the taxi model on the eval split, once and four times over, with the
metrics and the slice column of `examples/taxi/pipeline.yaml`. The baseline is TFMA on tf.Examples;
ours has the module path `components.column_evaluation`, on tf.Examples and on Parquet. Each
evaluation is in a separate process, which imports TFX before the clock starts; its seconds are
those of all its threads. The seconds per million rows are the difference between the eval split
four and forty times over.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._result import Row
from benchmarks._taxi import FOLDER, ROOT, taxi

MODULE = "components.column_evaluation"
BY_ROWS = ("tf.Examples", "")
WAYS = (BY_ROWS, ("tf.Examples", MODULE), ("Parquet", MODULE))
FORMATS = {"tf.Examples": "FORMAT_TF_EXAMPLE", "Parquet": "FORMAT_PARQUET"}
MANY = 40


def main() -> None:
    """Measures all ways in turns, for each number of rows."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    counts, runs = ((1,), 1) if arguments.quick else ((1, 4), arguments.runs)
    taxi()
    artifacts = FOLDER / "taxi" / "artifacts"
    model = str(latest(artifacts / "Trainer" / "model"))
    schema = str(latest(artifacts / "SchemaGen" / "schema") / "schema.pbtxt")
    split = latest(artifacts / "ArrowExampleGen" / "examples") / "Split-eval"
    rows, notes = [], {}
    with tempfile.TemporaryDirectory() as folder:

        def measure(times: int, way: tuple[str, str]) -> float:
            data, module = way
            examples = Path(folder) / data / str(times)
            if not examples.exists():
                in_own_process(write_examples, split, examples, times=times, data=data)
            with tempfile.TemporaryDirectory() as output:
                seconds, count = in_own_process(
                    evaluate, str(examples), model, schema, output, module=module, data=data
                )
            print(f"{count:,} rows of {data}, {module or 'by rows'}: {seconds:.1f} s", flush=True)
            evaluated[times] = count
            return seconds

        evaluated: dict[int, int] = {}
        for times in counts:
            found: dict[tuple[str, str], list[float]] = {way: [] for way in WAYS}
            for index in range(runs):
                for way in WAYS if index % 2 == 0 else reversed(WAYS):
                    found[way].append(measure(times, way))
            for way in WAYS[1:]:
                what = f"{evaluated[times]:,} rows of {way[0]}"
                rows.append(Row(what, "TFMA by rows", found[way], found[BY_ROWS]))
        for way in () if arguments.quick else WAYS[1:]:
            more = [measure(MANY, way) - measure(counts[-1], way) for _ in range(runs)]
            million = 1e6 / (evaluated[MANY] - evaluated[counts[-1]])
            seconds = statistics.median(more) * million
            notes[way[0]] = f"{way[0]}: {seconds:.0f} s per million rows, without the fixed cost."
    _report.publish(__file__, rows, quick=arguments.quick, notes=notes)


def write_examples(split: Path, folder: Path, *, times: int, data: str) -> None:
    """Writes the rows of a Parquet split so many times over."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import tensorflow as tf

    from components.arrow_example_gen.columns import serialize

    (folder / "Split-eval").mkdir(parents=True)
    table = pa.concat_tables(pq.read_table(path) for path in sorted(split.glob("*.parquet")))
    if data == "Parquet":
        table = pa.concat_tables([table] * times)
        pq.write_table(table, folder / "Split-eval" / "rows.parquet")
        return
    (batch,) = table.combine_chunks().to_batches()
    with tf.io.TFRecordWriter(str(folder / "Split-eval" / "rows.gz"), "GZIP") as writer:
        for row in serialize(batch) * times:
            writer.write(row)


def latest(folder: Path) -> Path:
    """The latest run's artifact; TFX names its folder by a number."""
    return max(folder.iterdir(), key=lambda path: int(path.name))


def evaluate(
    examples: str, model: str, schema: str, output: str, *, module: str, data: str
) -> tuple[float, int]:
    """Runs TFX's Evaluator; returns its processor seconds and the evaluated rows."""
    import tensorflow_model_analysis as tfma
    from google.protobuf import json_format
    from tfx.components.evaluator.executor import Executor
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import artifact_utils, standard_artifacts

    from pipeline.config.config_file import load_config

    config = load_config(ROOT / "examples" / "taxi" / "pipeline.yaml")
    eval_config = config.evaluation.eval_config(
        label=config.label.column, kind=config.label.kind, weight=config.features.weight
    )
    inputs = {
        "examples": standard_artifacts.Examples(),
        "model": standard_artifacts.Model(),
        "schema": standard_artifacts.Schema(),
    }
    inputs["schema"].uri = str(Path(schema).parent)
    inputs["examples"].uri, inputs["model"].uri = examples, model
    inputs["examples"].split_names = artifact_utils.encode_split_names(["eval"])
    inputs["examples"].set_string_custom_property("payload_format", FORMATS[data])
    outputs = {
        "evaluation": standard_artifacts.ModelEvaluation(),
        "blessing": standard_artifacts.ModelBlessing(),
    }
    for name, artifact in outputs.items():
        artifact.uri = f"{output}/{name}"
    context = BaseBeamExecutor.Context(
        # As in a pipeline: without an image, TFX would pack itself for the workers.
        beam_pipeline_args=["--runner=FnApiRunner", "--sdk_container_image=unused"],
        tmp_dir=f"{output}/tmp",
        unique_id="1",
    )
    properties = {
        "eval_config": json_format.MessageToJson(eval_config),
        "example_splits": json.dumps(["eval"]),
        "fairness_indicator_thresholds": "null",
        **({"module_path": module} if module else {}),
    }
    started = time.process_time()
    Executor(context).Do(
        {name: [artifact] for name, artifact in inputs.items()},
        {name: [artifact] for name, artifact in outputs.items()},
        properties,
    )
    seconds = time.process_time() - started
    metrics = tfma.load_eval_result(f"{output}/evaluation").get_metrics_for_slice()
    return seconds, int(metrics["rows"]["doubleValue"])


if __name__ == "__main__":
    main()
