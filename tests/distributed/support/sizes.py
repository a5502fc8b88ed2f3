"""Workers that measured different micro-batch sizes: `sizes.py FOLDER`."""

from __future__ import annotations

import os
import sys

from on_workers import send_to_test

from trainer_module.devices.worker_group import connect_workers
from trainer_module.memory.micro_batch_size import _once_per_run, _share_of_machine

workers = connect_workers(start_timeout_seconds=60, worker_timeout_seconds=60)


def agreed(measured: list[int], record: str | None) -> int:
    return _once_per_run(record, workers, lambda: measured[workers.number])


# Only the chief reads and writes records.
record = os.path.join(sys.argv[1], "record.json") if workers.is_chief else None
send_to_test(
    [
        _share_of_machine("80%", workers),
        _share_of_machine("4GiB", workers),
        _share_of_machine(1000, workers),
    ]
)
send_to_test(agreed([64, 16, 32], record))
# Started again, with more memory than there was.
send_to_test(agreed([64, 128, 128], record))
send_to_test(agreed([8, 4, 32], None))
