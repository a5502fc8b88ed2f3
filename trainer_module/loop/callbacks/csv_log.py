"""Write a CSV table of the epochs."""

from __future__ import annotations

import csv
import io

from shared_core.atomic_files import atomic_write_text
from trainer_module.common.json_values import Json
from trainer_module.loop.callbacks.callback import Callback, EpochEnd


class CsvLog(Callback):
    """Write one row per epoch: epoch, step, loss, and each metric of the eval split.

        epoch,step,loss,eval_loss,eval_auc
        1,19,0.6931,0.6520,0.7123

    `loss` is the training loss, regularisation included. The whole file is written each time, so
    that a run that resumes from a checkpoint repeats no row.
    """

    on_chief_only = True

    def __init__(self, path: str) -> None:
        """Create the callback; the file is written after the first epoch."""
        self.path = path
        self._rows: list[dict[str, float]] = []

    def on_epoch(self, end: EpochEnd) -> bool:
        """Add the epoch's row to the file."""
        metrics = {f"eval_{name}": value for name, value in end.metrics.items()}
        self._rows.append({"epoch": end.epoch, "step": end.step, "loss": end.loss, **metrics})
        table = io.StringIO()
        writer = csv.DictWriter(table, self._rows[-1], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows)
        atomic_write_text(self.path, table.getvalue())
        return False

    def state(self) -> dict[str, Json]:
        """Return the rows so far."""
        return {"rows": self._rows}

    def restore(self, state: dict[str, Json]) -> None:
        """Restore the rows that `state` returned."""
        self._rows = list(state["rows"])
