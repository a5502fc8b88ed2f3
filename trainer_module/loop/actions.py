"""Re-export callbacks under their former module and name, for existing programs."""

from __future__ import annotations

from trainer_module.loop.callbacks import (
    Callback,
    CsvLog,
    EarlyStopping,
    EpochEnd,
    ExportBest,
    FitResult,
    KerasCallback,
    LoopProgress,
    ProgressLog,
    TensorBoardScalars,
)

Action = Callback

__all__ = [
    "Action",
    "CsvLog",
    "EarlyStopping",
    "EpochEnd",
    "ExportBest",
    "FitResult",
    "KerasCallback",
    "LoopProgress",
    "ProgressLog",
    "TensorBoardScalars",
]
