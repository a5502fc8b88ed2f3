"""What workers say to each other: `talks.py CASE`, `talks.py sizes FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
import time

from on_workers import send_to_test

from trainer_module.devices.cluster import WorkerLost, cluster_of_environment
from trainer_module.devices.worker_group import connect_workers

cluster = cluster_of_environment()
assert cluster is not None
case, number = sys.argv[1], cluster.number
if case == "never comes" and number == 1:
    time.sleep(60)
if case == "other cluster" and number == 1:
    os.environ["TF_CONFIG"] = os.environ["TF_CONFIG"].replace("127.0.0.1", "localhost")
# Short where a test waits for it, else long enough for a machine with much else to do.
workers = connect_workers(
    start_timeout_seconds=6 if case == "never comes" else 60,
    worker_timeout_seconds=4 if case == "is stopped" else 60,
)
if case == "gathers":
    send_to_test(workers.gather("a list", [number, "text", None, 0.1]))
    send_to_test(workers.broadcast_from_chief("the chief's", {"by": number}))
    for turn in range(20):
        workers.gather(f"turn {turn}", turn)
    send_to_test(connect_workers(start_timeout_seconds=60, worker_timeout_seconds=60) is workers)
    workers.assert_same_on_all_workers("settings", {"seed": 3, "optimizer": {"name": "sgd"}})
    workers.leave()
    try:
        workers.barrier("after")
    except WorkerLost as error:
        send_to_test(str(error).partition(" (")[2].partition(") ")[2])
if case == "differs":
    workers.assert_same_on_all_workers("settings", {"seed": number, "optimizer": {"name": "sgd"}})
if case == "strays":
    workers.barrier(f"place {number}")
if number == 1:
    if case == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if case == "is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if case == "fails":
        raise KeyError("a column")
    if case == "ends":
        sys.exit(0)
if case == "is killed" and number == 2:
    time.sleep(60)  # as in a collective: the main thread asks no one
if case in ("is killed", "is stopped", "fails", "ends"):
    workers.barrier("a place")
if case == "sizes":
    from trainer_module.memory.micro_batch_size import _once_per_run, _share_of_machine

    # Only the chief reads and writes records.
    record = f"{sys.argv[2]}/record.json" if workers.is_chief else None
    send_to_test([_share_of_machine(part, workers) for part in ("80%", "4GiB", 1000)])
    # Started again with more memory than there was; and without a record.
    for measured, kept in (([64, 16, 32], record), ([64, 128, 128], record), ([8, 4, 32], None)):
        send_to_test(_once_per_run(kept, workers, lambda of=measured: of[number]))
