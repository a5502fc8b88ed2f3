"""TFX's Evaluator by columns, against TFMA's rows: processor seconds.

TFX's executor evaluates the taxi model on the eval split, once and four times over, with the
metrics and the slice column of `examples/taxi/pipeline.yaml`; ours has the module path
`components.column_evaluation`. Each evaluation is in a separate process, which imports TFX before
the clock starts; its seconds are those of all its threads.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._result import Row
from benchmarks._taxi import FOLDER, ROOT, repeated, taxi

MODULE = "components.column_evaluation"


def main() -> None:
    """Measures both ways in turns, for each number of rows."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    counts, runs = ((1,), 1) if arguments.quick else ((1, 4), arguments.runs)
    taxi()
    artifacts = FOLDER / "taxi" / "artifacts"
    model = str(latest(artifacts / "Trainer" / "model"))
    split = latest(artifacts / "ArrowExampleGen" / "examples") / "Split-eval" / "*.gz"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for times in counts:
            examples = Path(folder) / str(times)
            repeated(str(split), times=times, files=1, folder=examples / "Split-eval")
            found: dict[str, list[float]] = {"": [], MODULE: []}
            for index in range(runs):
                for module in list(found) if index % 2 == 0 else reversed(list(found)):
                    output = f"{folder}/{times}-{index}-{module or 'rows'}"
                    seconds, count = in_own_process(
                        evaluate, str(examples), model, output, module=module
                    )
                    found[module].append(seconds)
                    print(f"{count:,} rows, {module or 'by rows'}: {seconds:.1f} s", flush=True)
            rows.append(Row(f"{count:,} rows", "TFMA by rows", found[MODULE], found[""]))
    _report.publish(__file__, rows, quick=arguments.quick)


def latest(folder: Path) -> Path:
    """The latest run's artifact; TFX names its folder by a number."""
    return max(folder.iterdir(), key=lambda path: int(path.name))


def evaluate(examples: str, model: str, output: str, *, module: str) -> tuple[float, int]:
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
    }
    inputs["examples"].uri, inputs["model"].uri = examples, model
    inputs["examples"].split_names = artifact_utils.encode_split_names(["eval"])
    outputs = {
        "evaluation": standard_artifacts.ModelEvaluation(),
        "blessing": standard_artifacts.ModelBlessing(),
    }
    for name, artifact in outputs.items():
        artifact.uri = f"{output}/{name}"
    context = BaseBeamExecutor.Context(
        beam_pipeline_args=["--runner=FnApiRunner"], tmp_dir=f"{output}/tmp", unique_id="1"
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
