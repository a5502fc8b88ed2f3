"""The public names of `trainer_module`, by use; `lazy_loader` reads this file."""

# ruff: noqa: I001 - grouped by use. ASCII only: lazy_loader reads it in the locale's encoding.

__version__: str

# In a TFX pipeline
from .tfx.run import run_fn as run_fn
from .tfx.tune import tuner_fn as tuner_fn
from .tfx.input_gradients import input_gradients_signature as input_gradients_signature
from .config import TrainerConfig as TrainerConfig
from .tuning.tuner_config import TunerConfig as TunerConfig
from .model.model_context import ModelContext as ModelContext
from .model.model_context import FeatureLayout as FeatureLayout
from .model.default_model import default_model as default_model
from .data.text_bags import text_bags as text_bags
from .devices.process import prepare_process as prepare_process

# Train a Keras model
from .step.train_step import TrainStep as TrainStep
from .losses.weighted_loss import weighted_loss as weighted_loss
from .loop.training_loop import TrainingLoop as TrainingLoop
from .loop.callback import FitResult as FitResult
from .step.scaled_learning_rate import ScaledLearningRate as ScaledLearningRate
from .loop.evaluation import Evaluation as Evaluation
from .loop.checkpoints import Checkpoints as Checkpoints
from .memory.micro_batch_size import find_micro_batch_size as find_micro_batch_size

# Callbacks of a training loop
from .loop.callback import Callback as Callback
from .loop.callback import EpochEnd as EpochEnd
from .loop.callback import LoopProgress as LoopProgress
from .loop.callbacks import EarlyStopping as EarlyStopping
from .loop.progress_log import ProgressLog as ProgressLog
from .loop.callbacks import Prune as Prune
from .loop.callbacks import TensorBoardScalars as TensorBoardScalars

# Where the time goes
from .profiling.profile_step import profile_step as profile_step
from .tfx.profile import profile_fn as profile_fn
from .profiling.profile_step import StepProfile as StepProfile

# Several devices, several machines
from .devices.strategies import create_strategy as create_strategy
from .parameter_server.parameter_server_step import ParameterServerStep as ParameterServerStep
from .launch import launch as launch
from .devices.local_cluster import WorkersFailed as WorkersFailed
from .devices.cluster import WorkerLost as WorkerLost
from .devices.worker_group import Disagreement as Disagreement

# Your own training loop
from .window.accumulation import accumulate_gradients as accumulate_gradients
from .window.gradient_sum import sum_over_replicas as sum_over_replicas
from .window.update import mean_gradients as mean_gradients
from .window.gradient_sum import apply_gradients as apply_gradients

# Gradients of single examples, tasks and inputs
from .gradients.per_example import per_example_gradients as per_example_gradients
from .gradients.per_example import gradient_norms as gradient_norms
from .gradients.per_example import clipped_gradient_sum as clipped_gradient_sum
from .gradients.inputs import input_gradients as input_gradients
from .gradients.inputs import integrated_gradients as integrated_gradients

# A layer that loses weights in training
from .model.layers import PrunedDense as PrunedDense

# Models that do not fit on one device
from .stages.staged_model import split_model as split_model
from .stages.staged_model import StagedModel as StagedModel
from .stages.recompute import recompute as recompute
