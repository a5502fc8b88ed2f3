"""Peak memory of one optimizer step on 512 rows: micro-batches of 32 rows, against all at once.

What is counted is resident memory above that of the process right before the step: TensorFlow,
weights, optimizer slots and the 512 rows are there already, and so is what tracing and a first step
on a single row leave behind. What remains are activations, gradients and their sums. With XLA the
first step has all rows, so that its compilation does not count, and TensorFlow's allocator of
oneDNN, which would keep that step's memory, is off. (XLA has no fast convolutions on a CPU, so it
runs the transformer alone.) Each step is
taken in a separate process (the kernel's high-water mark, `VmHWM`, is that of a process), and
both have to arrive at the same loss and the same weights.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._result import Limit, Row

WINDOW = 16
TITLES = {"convolution": "convolution, 64 x 64", "transformer": "transformer block, 128 tokens"}


class Peak(NamedTuple):
    """A step's memory in bytes, and what came out of it."""

    above: int
    loss: float
    weights: float


def main() -> None:
    """Takes the steps, alternating."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    cases = [("convolution", False), ("transformer", False), ("transformer", True)]
    rows = []
    for name, xla in cases[:1] if arguments.quick else cases:
        ours, full = [], []
        for index in range(1 if arguments.quick else arguments.runs):
            for micro_batches in (WINDOW, 1) if index % 2 == 0 else (1, WINDOW):
                peak = in_own_process(measure, name, micro_batches, xla)
                (full if micro_batches == 1 else ours).append(peak)
                print(f"{name}, {micro_batches} micro-batches, {xla=}: {peak.above / 1e6:,.0f} MB")
        check_same_work(ours + full)
        rows.append(
            Row(
                what=f"{TITLES[name]}{', XLA' if xla else ''}: micro-batch 1/{WINDOW}",
                baseline_name="full batch",
                ours=[peak.above for peak in ours],
                baseline=[peak.above for peak in full],
                unit="B",
                limit=Limit(0.12),
            )
        )
    _report.publish(__file__, rows, quick=arguments.quick)


def measure(name: str, micro_batches: int, xla: bool) -> Peak:
    """Takes one step and returns its peak above what there was before."""
    if xla:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # before TensorFlow starts
    import keras
    import tensorflow as tf

    from benchmarks._models import LARGE_MODELS
    from trainer_module import TrainStep

    workload = LARGE_MODELS[name]
    rows = workload.micro_batch_rows * WINDOW
    model = workload.model()
    step = TrainStep(
        model,
        keras.optimizers.Adam(1e-3),
        workload.loss,
        micro_batch_size=rows // micro_batches,
        jit_compile=xla,
    )
    batch = tuple(tf.constant(array) for array in workload.data(rows))
    step(batch if xla else tuple(tensor[:1] for tensor in batch))
    if xla:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # gives that step's memory back
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
    before = _status("VmHWM")
    report = step(batch)
    above = _status("VmHWM") - before
    weights = math.sqrt(sum(float(tf.nn.l2_loss(v.value)) for v in model.trainable_variables))
    return Peak(above, float(report.loss), weights)


def check_same_work(peaks: list[Peak]) -> None:
    """Stops when a step ended elsewhere than the first one did."""
    for peak in peaks:
        for mine, first in ((peak.loss, peaks[0].loss), (peak.weights, peaks[0].weights)):
            if not math.isclose(mine, first, rel_tol=1e-4):
                raise SystemExit(f"the steps differ, {peak} and {peaks[0]}: no comparison")


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
