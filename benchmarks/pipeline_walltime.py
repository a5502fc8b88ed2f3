"""Our taxi pipeline against TFX's own taxi template, from CSV to pushed model.

The template (`tfx template copy --model taxi`, every node switched on as its comments say) and our
example run on the same CSV (15,002 rows) with the same number of optimizer steps (1,000 of 40
rows), each in a separate process, with Beam's FnApiRunner in memory, one after the other.

Ours has two nodes more (ExampleValidator, NormalizationValidator) and also evaluates by slice.
The template runs on Keras 2 (`TF_USE_LEGACY_KERAS=1`), the only one that it works with.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import _report
from benchmarks._result import Limit, Row

ROOT = Path(__file__).resolve().parents[1]
STEPS = 1000  # the template's TRAIN_NUM_STEPS
BATCH_ROWS = 40  # the template's TRAIN_BATCH_SIZE


def main() -> None:
    """Runs both, alternating."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    runs = 1 if arguments.quick else arguments.runs
    ours, template = [], []
    with tempfile.TemporaryDirectory() as folder:
        source = copy_template(Path(folder) / "template")
        for run in range(runs):
            # Who goes first changes, so that drift of the machine hits both alike.
            order = ["ours", "template"] if run % 2 == 0 else ["template", "ours"]
            for who in order:
                target = Path(folder) / f"{who}-{run}"
                if who == "ours":
                    ours.append(seconds(our_command(target), cwd=ROOT, legacy_keras=False))
                else:
                    shutil.copytree(source, target)
                    command = [sys.executable, "local_runner.py"]
                    template.append(seconds(command, cwd=target, legacy_keras=True))
                    check_pushed(target / "tfx_pipeline_output")
                print(f"run {run + 1}, {who}: {(ours if who == 'ours' else template)[-1]:.1f} s")
    row = Row("wall time of the whole run", "TFX's taxi template", ours, template, limit=Limit(1))
    _report.publish(__file__, [row], quick=arguments.quick)


def our_command(folder: Path) -> list[str]:
    """`python -m pipeline run` into a new folder, as long as the template trains."""
    overrides = [
        f"output.folder={folder}",
        "training.epochs=null",
        f"training.steps={STEPS}",
        f"training.global_batch_size={BATCH_ROWS}",
        f"training.micro_batch_size={BATCH_ROWS}",
    ]
    config = ROOT / "examples" / "taxi" / "pipeline.yaml"
    command = [sys.executable, "-m", "pipeline", "run", "--config", str(config)]
    return [*command, *(f"--set={override}" for override in overrides)]


def copy_template(folder: Path) -> Path:
    """The template as its user has it after the last step of its tutorial."""
    subprocess.run(
        [
            *(str(Path(sys.executable).with_name("tfx")), "template", "copy", "--model", "taxi"),
            *("--pipeline_name", "taxi_template", "--destination_path", str(folder)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    graph = folder / "pipeline" / "pipeline.py"
    text, switched_on = re.subn(r"# (components\.append\()", r"\1", graph.read_text())
    # Its ExampleValidator needs a reviewed schema and stays off; so does what is for BigQuery.
    assert switched_on >= 7, f"{switched_on} nodes switched on: the template has changed"
    graph.write_text(text)
    runner = folder / "local_runner.py"
    text = runner.read_text()
    anchor = "metadata_connection_config="
    assert anchor in text, "the template has changed"
    runner.write_text(
        text.replace(anchor, "beam_pipeline_args=['--runner=FnApiRunner'], " + anchor)
    )
    return folder


def seconds(command: list[str], *, cwd: Path, legacy_keras: bool) -> float:
    """Wall time of a process that has to succeed."""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": str(int(legacy_keras))}
    started = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return elapsed


def check_pushed(root: Path) -> None:
    """The template pushes in the same process; a run that did not is no run to compare with."""
    assert list(root.rglob("serving_model/**/saved_model.pb")), f"no pushed model below {root}"


if __name__ == "__main__":
    main()
