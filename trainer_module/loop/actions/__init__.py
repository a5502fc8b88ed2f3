"""What happens between calls of the graph; each action is one file.

TrainingLoop(..., actions=[ProgressLog(), CsvLog("run/epochs.csv"),
                           ExportBest(model, "run/best.keras", monitor="auc"),
                           EarlyStopping(model, monitor="auc")])
"""

from __future__ import annotations

from trainer_module.loop.actions.action import Action, EpochEnd, FitResult, LoopProgress
from trainer_module.loop.actions.csv_log import CsvLog
from trainer_module.loop.actions.early_stopping import EarlyStopping
from trainer_module.loop.actions.export_best import ExportBest
from trainer_module.loop.actions.keras_callback import KerasCallback
from trainer_module.loop.actions.progress_log import ProgressLog
from trainer_module.loop.actions.tensorboard import TensorBoardScalars

__all__ = [
    "Action",
    "LoopProgress",
    "EpochEnd",
    "FitResult",
    "ProgressLog",
    "TensorBoardScalars",
    "CsvLog",
    "EarlyStopping",
    "ExportBest",
    "KerasCallback",
]
