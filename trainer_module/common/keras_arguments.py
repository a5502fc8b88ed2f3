"""Name what replaces the arguments that users know from Keras."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from shared_core.nearest import nearest

_EVALUATE = "give TrainingLoop evaluate=Evaluation(model, loss, data, metrics=[...])"
_METRICS = "give them to Evaluation(metrics=[...]) (trainer.metrics in a pipeline)"
_PROGRESS = "give TrainingLoop progress=False or callbacks=[ProgressLog(...)]"
_XY = "give TrainingLoop (with batch_size=) and Evaluation the data as (x, y)"
_TO_LOOP = "it is an argument of TrainingLoop"
_CLIP = "use clip_norm of TrainStep, which clips the gradient of the whole window once"
_READS_AHEAD = "arrays are read ahead automatically; for a dataset use dataset.prefetch"
_SCALES = "TrainStep scales losses itself for float16 models"
_EMA = "use ema_momentum of TrainStep, which averages once per step"

# Arguments of `compile`, `fit`, `evaluate` and the optimizers of Keras: what to do here.
REPLACEMENTS = {
    "optimizer": "give it to TrainStep(model, optimizer, loss) (trainer.optimizer in a pipeline)",
    "loss": "it is loss_fn of TrainStep and Evaluation (trainer.loss in a pipeline)",
    "loss_weights": "use weighted_loss(loss, loss_weights=...) as the loss",
    "metrics": _METRICS,
    "weighted_metrics": f"{_METRICS}; they use the weights of the rows",
    "run_eagerly": "steps run as graphs; use tf.config.run_functions_eagerly(True) to debug",
    "jit_compile": "use jit_compile of TrainStep",
    "steps_per_execution": "use steps_per_loop of TrainingLoop",
    **dict.fromkeys(("auto_scale_loss", "loss_scale_factor"), _SCALES),
    **dict.fromkeys("xy", _XY),
    "batch_size": (
        "the rows of an optimizer step are TrainingLoop(batch_size=...) for arrays, or those of "
        "the dataset's batches; micro_batch_size of TrainStep only limits the memory, and "
        "Evaluation gives the same for all sizes"
    ),
    **dict.fromkeys(("epochs", "steps_per_epoch", "callbacks", "shuffle"), _TO_LOOP),
    "steps": f"{_TO_LOOP}; for fewer rows in Evaluation, give it data.take(n)",
    "initial_epoch": "give TrainingLoop checkpoints=Checkpoints(folder, step): it continues there",
    "verbose": _PROGRESS,
    "validation_data": _EVALUATE,
    "validation_split": f"split the rows yourself, and {_EVALUATE} with the others",
    "validation_steps": f"{_EVALUATE}; all of its rows are evaluated: use data.take(n) for fewer",
    "validation_batch_size": f"{_EVALUATE}; it gives the same for all sizes of batches",
    "validation_freq": f"{_EVALUATE}, or a function that calls it in some epochs",
    "class_weight": "use weighted_loss(loss, class_weight={...}) as the loss",
    "sample_weight": "give the weights as third part of the data, (features, labels, weights)",
    **dict.fromkeys(("max_queue_size", "use_multiprocessing"), _READS_AHEAD),
    "workers": f"{_READS_AHEAD}; several processes train with create_strategy",
    "return_dict": "the result has the values by name",
    "clipnorm": f"it would clip each variable separately; {_CLIP}",
    "clipvalue": f"it would change the direction of the gradient; {_CLIP}",
    "global_clipnorm": _CLIP,
    **dict.fromkeys(("use_ema", "ema_overwrite_frequency"), _EMA),
    "gradient_accumulation_steps": (
        "use micro_batch_size of TrainStep, the rows of one micro-batch; a window is a global batch"
    ),
    "learning_rate": "give it to the optimizer, such as keras.optimizers.Adam(1e-3)",
    "weight_decay": "give it to the optimizer, such as keras.optimizers.AdamW(weight_decay=1e-4)",
    "global_batch_size": "use batch_size of TrainingLoop, or the dataset's batches",
}

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class _UnknownArgument(TypeError, ValueError):
    """An argument that a function does not have: a TypeError as Python raises it."""


def naming_replacements(
    *more: str,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Return a decorator that rejects unknown arguments with what replaces them.

    `more` are names that the function takes in addition to those of its signature.
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        known = {*inspect.signature(function).parameters, *more} - {"self", "options"}
        caller = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            for name in sorted(kwargs.keys() - known):
                raise _UnknownArgument(
                    f"{caller} has no argument {name!r}: "
                    f"{REPLACEMENTS.get(name) or nearest(name, known)}."
                )
            return function(*args, **kwargs)

        return checked

    return decorate
