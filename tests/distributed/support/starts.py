"""A worker that connects to the others, and then does what CASE says: `starts.py CASE TIMEOUT`.

"meets" needs no TensorFlow; "trains" makes the strategy and takes a step, and worker 1 is killed
so many milliseconds after all have met: "trains:100".
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from on_workers import send_to_test

case, _, milliseconds = sys.argv[1].partition(":")
timeout = float(sys.argv[2])
options = {"start_timeout_seconds": timeout, "worker_timeout_seconds": 30.0}

if case == "meets":
    from trainer_module.devices.worker_group import connect_workers

    workers = connect_workers(**options)
    send_to_test(["met", workers.number])
    workers.barrier("a place")
    workers.barrier("another place")
    workers.leave()
if case == "trains":
    import keras
    import numpy as np

    from trainer_module import TrainingLoop, TrainStep, create_strategy
    from trainer_module.devices.worker_group import connect_workers

    workers = connect_workers(**options)
    if workers.number == 1:
        killing = (os.getpid(), signal.SIGKILL)
        threading.Timer(float(milliseconds) / 1000, os.kill, killing).start()
    strategy = create_strategy("multi_worker", **options)
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
    step = TrainStep(model, optimizer, "mse", micro_batch_size=1, strategy=strategy)
    rows = np.ones([4, 1], "float32")
    TrainingLoop(step, (rows, rows), batch_size=2, steps=100_000, progress=False).fit()
