"""Workers that measured different micro-batch sizes: `sizes.py FOLDER`."""

from __future__ import annotations

import sys

from on_workers import tell

from trainer_module.devices.crew import join_crew
from trainer_module.memory.micro_batch_rows import _least, _part_of
from trainer_module.memory.micro_batch_size import MicroBatchSize

crew = join_crew(start_timeout_seconds=60, worker_timeout_seconds=60)


def least(rows: int, source: str, folder: str | None) -> int:
    return _least(MicroBatchSize(rows, 1, 2, None, None, source), crew, folder)


folder = sys.argv[1]
tell([_part_of("80%", crew), _part_of("4GiB", crew), _part_of(1000, crew)])
tell(least([64, 16, 32][crew.number], "measured", folder))
# Started again: the chief has its record; the others find more memory than there was.
tell(least([64, 128, 128][crew.number], "record", folder))
# A run with another budget: the chief measures again.
tell(least([128, 256, 128][crew.number], "measured", folder))
tell(least([8, 4, 32][crew.number], "cache", None))
