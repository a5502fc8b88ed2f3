"""Peak memory of a device: a model in two stages, and recomputed activations.

**Two stages.** Each device is a separate process here, so that its memory is that of the process:
a wide MLP whose weights, with Adam's slots and the sums of gradients, are most of what it takes, in
one piece on one device, and in two stages on two. The device that takes more counts. As many
micro-batches are under way as there are stages, so that activations take what they take in one
piece; what is halved is all that goes with the weights.

**Recomputed.** Transformer blocks in one process, with `recompute` of each block and without. What
counts is resident memory above that right before the step, as for peak_memory; the time is that of
the same step, which has one more forward pass.

Both ways have to arrive at the same loss and the same weights.
"""

from __future__ import annotations

import math
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import _report
from benchmarks._measure import in_own_process
from benchmarks._result import Limit, Row

WIDTH, LAYERS, ROWS, MICRO = 2048, 8, 256, 32
BLOCKS, TOKENS, COLUMNS = 6, 128, 64
SERVER = """
import sys
import tensorflow as tf
cluster = tf.train.ClusterSpec({"stage": sys.argv[2].split(",")})
tf.distribute.Server(cluster, "stage", int(sys.argv[1])).join()
"""


class Step(NamedTuple):
    """What a step took, and what came out of it.

    Attributes:
        bytes: Of the device that took most.
        seconds: Of one step.
        loss: Of the last one.
        weights: Sum of their squares.
    """

    bytes: int
    seconds: float
    loss: float
    weights: float


def main() -> None:
    """Takes the steps, alternating."""
    arguments = _report.parser(__file__, rounds=3).parse_args()
    rounds = 1 if arguments.quick else arguments.runs
    staged = rounds_of(rounds, on_devices, {"stages": 2, "whole": 1})
    recomputed = rounds_of(rounds, in_one_process, {"recomputed": True, "kept": False})
    rows = [
        Row(
            what="wide MLP in two stages, a device's memory",
            baseline_name="in one piece",
            ours=[step.bytes for step in staged["stages"]],
            baseline=[step.bytes for step in staged["whole"]],
            unit="B",
            limit=Limit(0.75),
        ),
        Row(
            what="transformer blocks recomputed, memory of a step",
            baseline_name="activations kept",
            ours=[step.bytes for step in recomputed["recomputed"]],
            baseline=[step.bytes for step in recomputed["kept"]],
            unit="B",
            limit=Limit(0.4),
        ),
        Row(
            what="transformer blocks recomputed, time of a step",
            baseline_name="activations kept",
            ours=[step.seconds for step in recomputed["recomputed"]],
            baseline=[step.seconds for step in recomputed["kept"]],
        ),
    ]
    _report.publish(__file__, rows, quick=arguments.quick)


def rounds_of(rounds: int, measure: Any, contenders: dict[str, Any]) -> dict[str, list[Step]]:
    """Returns each contender's steps; who goes first changes every round."""
    found: dict[str, list[Step]] = {name: [] for name in contenders}
    for index in range(rounds):
        for name in contenders if index % 2 == 0 else reversed(contenders):
            step = in_own_process(measure, contenders[name])
            print(f"{name}: {step.bytes / 1e6:,.0f} MB, {1e3 * step.seconds:,.0f} ms")
            found[name].append(step)
    check_same_work([step for steps in found.values() for step in steps])
    return found


def on_devices(stages: int) -> Step:
    """Takes two steps on so many devices, each of them a process, and asks for their peaks."""
    servers, addresses = _start_servers(stages)
    try:
        import keras
        import numpy as np
        import tensorflow as tf

        from trainer_module import StagedModel, TrainStep, split_model

        tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"stage": addresses}))
        before = [_status(server.pid, "VmRSS") for server in servers]
        keras.utils.set_random_seed(1)
        dense = keras.layers.Dense
        hidden = [dense(WIDTH, activation="relu", name=f"hidden_{i}") for i in range(LAYERS)]
        model = keras.Sequential([keras.Input((WIDTH,)), *hidden, dense(1)])
        cuts = [f"hidden_{LAYERS * (i + 1) // stages - 1}" for i in range(stages - 1)]
        devices = [f"/job:stage/replica:0/task:{i}/device:CPU:0" for i in range(stages)]
        staged = StagedModel(split_model(model, cuts), devices=devices)
        random = np.random.default_rng(0)
        batch = (
            tf.constant(random.normal(size=(ROWS, WIDTH)).astype("float32")),
            tf.constant(random.normal(size=(ROWS, 1)).astype("float32")),
        )
        step = TrainStep(staged, keras.optimizers.Adam(1e-4), "mse", micro_batch_size=MICRO)
        loss, seconds = _steps(step, batch)
        peaks = [
            _status(server.pid, "VmHWM") - base
            for server, base in zip(servers, before, strict=True)
        ]
        return Step(max(peaks), seconds, loss, _size(staged))
    finally:
        for server in servers:
            server.kill()
            server.wait()


def in_one_process(recomputed: bool) -> Step:
    """Takes steps on a model of equal blocks, and asks for the peak above what there was before."""
    import keras
    import numpy as np
    import tensorflow as tf

    from trainer_module import TrainStep, recompute

    keras.utils.set_random_seed(1)
    layers = keras.layers
    x = tokens = keras.Input((TOKENS, COLUMNS))
    for number in range(BLOCKS):
        y = start = keras.Input((TOKENS, COLUMNS))
        y = layers.MultiHeadAttention(4, COLUMNS // 4, dropout=0.1, seed=number)(y, y)
        y = middle = layers.LayerNormalization()(layers.Add()([start, y]))
        y = layers.Dense(COLUMNS)(layers.Dense(4 * COLUMNS, activation="gelu")(y))
        block = keras.Model(start, layers.LayerNormalization()(layers.Add()([middle, y])))
        x = (recompute(block) if recomputed else block)(x)
    model = keras.Model(tokens, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))
    step = TrainStep(model, keras.optimizers.Adam(1e-4), "mse", micro_batch_size=MICRO)
    random = np.random.default_rng(0)
    batch = (
        tf.constant(random.normal(size=(MICRO, TOKENS, COLUMNS)).astype("float32")),
        tf.constant(random.normal(size=(MICRO, 1)).astype("float32")),
    )
    step(tuple(tensor[:1] for tensor in batch))
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS, see proc(5)
    before = _status("self", "VmHWM")
    loss, seconds = _steps(step, batch)
    return Step(_status("self", "VmHWM") - before, seconds, loss, _size(model))


def check_same_work(steps: list[Step]) -> None:
    """Stops when a step ended elsewhere than the first one did."""
    for step in steps:
        for mine, first in ((step.loss, steps[0].loss), (step.weights, steps[0].weights)):
            if not math.isclose(mine, first, rel_tol=1e-4):
                raise SystemExit(f"the steps differ, {step} and {steps[0]}: no comparison")


def _steps(step: Any, batch: Any) -> tuple[float, float]:
    step(batch)
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        loss = float(step(batch).loss)
        seconds.append(time.perf_counter() - started)
    return loss, statistics.median(seconds)


def _status(process: int | str, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def _size(model: Any) -> float:
    import tensorflow as tf

    return math.fsum(float(tf.nn.l2_loss(v.value)) for v in model.trainable_variables)


def _start_servers(count: int) -> tuple[list[subprocess.Popen[bytes]], list[str]]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{s.getsockname()[1]}" for s in sockets]
    for each in sockets:
        each.close()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-c", SERVER]
    servers = [
        subprocess.Popen([*command, str(i), ",".join(addresses)], env=environment)
        for i in range(count)
    ]
    return servers, addresses


if __name__ == "__main__":
    main()
