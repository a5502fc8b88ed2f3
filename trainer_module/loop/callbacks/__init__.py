"""Callbacks of the loop, which run between calls of the graph. Each is in its own file.

Example:
    TrainingLoop(..., callbacks=[ProgressLog(), CsvLog("run/epochs.csv"),
                                 ExportBest(model, "run/best.keras", monitor="auc"),
                                 EarlyStopping(model, monitor="auc")])
"""

from __future__ import annotations

from trainer_module.loop.callbacks.callback import Callback, EpochEnd, FitResult, LoopProgress
from trainer_module.loop.callbacks.csv_log import CsvLog
from trainer_module.loop.callbacks.early_stopping import EarlyStopping
from trainer_module.loop.callbacks.export_best import ExportBest
from trainer_module.loop.callbacks.keras_callback import KerasCallback
from trainer_module.loop.callbacks.profile_steps import ProfileSteps
from trainer_module.loop.callbacks.progress_log import ProgressLog
from trainer_module.loop.callbacks.prune import Prune
from trainer_module.loop.callbacks.tensorboard import TensorBoardScalars

__all__ = [
    "Callback",
    "LoopProgress",
    "EpochEnd",
    "FitResult",
    "ProfileSteps",
    "ProgressLog",
    "Prune",
    "TensorBoardScalars",
    "CsvLog",
    "EarlyStopping",
    "ExportBest",
    "KerasCallback",
]
