"""Workers that measured different micro-batch sizes: `sizes.py FOLDER`."""

from __future__ import annotations

import sys

from on_workers import send_to_test

from trainer_module.devices.worker_group import connect_workers
from trainer_module.memory.micro_batch_rows import _share_of_machine, _smallest_of_workers
from trainer_module.memory.micro_batch_size import MicroBatchSize

workers = connect_workers(start_timeout_seconds=60, worker_timeout_seconds=60)


def least(rows: int, source: str, folder: str | None) -> int:
    return _smallest_of_workers(MicroBatchSize(rows, 1, 2, None, None, source), workers, folder)


folder = sys.argv[1]
send_to_test(
    [
        _share_of_machine("80%", workers),
        _share_of_machine("4GiB", workers),
        _share_of_machine(1000, workers),
    ]
)
send_to_test(least([64, 16, 32][workers.number], "measured", folder))
# Started again: the chief has its record; the others find more memory than there was.
send_to_test(least([64, 128, 128][workers.number], "record", folder))
# A run with another budget: the chief measures again.
send_to_test(least([128, 256, 128][workers.number], "measured", folder))
send_to_test(least([8, 4, 32][workers.number], "cache", None))
