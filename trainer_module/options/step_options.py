"""The options of one optimizer step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from trainer_module.common.tensors import AddedLosses, Json, Tensors
from trainer_module.options.settings import COUNT, RUNTIME_ONLY, Settings, parse_section

# What BatchNormalization computes in training; see `window/batch_norm.py`.
BatchNorm = Literal["ghost", "frozen"]
_NonFinite = Literal["raise", "skip"]
# (gradients, variables[, step=...]) -> gradients; see `StepOptions.transforms`.
GradientTransform = Callable[..., Sequence[Tensors]]


class UpdateOptions(Settings):
    """How the gradient of a window becomes an update."""

    clip_norm: float | None = Field(
        default=None,
        examples=[1.0],
        gt=0,
        description=(
            "Largest global norm of a window's gradient; larger gradients are scaled down to it. "
            "null: no clipping."
        ),
    )
    clip_per_example: float | None = Field(
        default=None,
        examples=[1.0],
        gt=0,
        allow_inf_nan=False,
        description=(
            "Largest norm of the gradient of one row: larger ones are scaled down to it before the "
            "weighted sum (docs/design.md 4.1), so that a wrong label has a bounded influence. Not "
            "differential privacy. clip_norm applies to the result. null: no clipping."
        ),
    )
    batch_norm: BatchNorm | None = Field(
        default=None,
        description=(
            "How BatchNormalization trains. ghost: each micro-batch is normalised by its own "
            "statistics, so the update depends on micro_batch_size and replicas; the moving "
            "statistics are those of global batches. frozen: by the moving statistics, to "
            "fine-tune. null: such layers are refused."
        ),
    )
    ema_momentum: float | None = Field(
        default=None,
        examples=[0.99],
        ge=0,
        lt=1,
        description=(
            "Momentum of an exponential moving average of the weights, such as 0.99: evaluations "
            "and the export use the average. null: no average."
        ),
    )
    non_finite: _NonFinite = Field(
        default="raise",
        description=(
            "What to do if the loss or the gradient of a window is NaN or infinite. raise: stop "
            "with an error; skip: do not apply the window."
        ),
    )
    jit_compile: Annotated[bool | Literal["auto"], RUNTIME_ONLY] = Field(
        default="auto",
        description=(
            "Compile the computation of a window with XLA. It does not change the result beyond "
            "rounding. auto: on a GPU, and on a CPU for a model with recurrent layers, if XLA can "
            "compile the model and all axes but the rows have a fixed size."
        ),
    )
    gradient_noise_scale: Annotated[int | None, COUNT] = Field(
        default=None,
        examples=[50],
        description=(
            "Measure the gradient noise scale (McCandlish et al., 2018) every so many steps, such "
            "as 50: global batches far below it are mostly noise, so that larger ones pay."
        ),
    )

    @model_validator(mode="after")
    def _check_batch_norm(self) -> UpdateOptions:
        if self.batch_norm == "ghost" and self.clip_per_example is not None:
            raise ValueError(
                f"batch_norm='ghost' with clip_per_example={self.clip_per_example}: the gradient "
                "of a row would depend on other rows; use clip_norm, or batch_norm='frozen'"
            )
        return self


class StepOptions(UpdateOptions):
    """The options of `TrainStep`; its other arguments are model, optimizer, loss and strategy.

    Attributes:
        micro_batch_size: Rows of one micro-batch on one replica. A step needs the memory of one
            micro-batch; small ones are computed together, up to 128 MiB, on a GPU 1/64 of its
            memory (at least 256 MiB).
        max_consecutive_skips: With `non_finite="skip"`, most windows to skip in a row; the next one
            stops the training.
        added_losses: Whether the values that layers pass to `add_loss` are a "mean" or a "sum" over
            rows; None: as this version of Keras computes its activity regularisers.
        transforms: Functions of the window's gradient, called in order. Each takes (gradients,
            variables): two lists of equal length, the dense mean gradient (regularisation
            included) of each variable that has one, and the Keras variables. It returns the new
            gradients, of the same shapes. A function with a parameter `step` also gets the number
            of the optimizer step, an int64 scalar.
        expected_rows: Rows of most global batches, if the dataset's shapes do not have the number
            (without drop_remainder): small steps then take less time. Other numbers of rows give
            the same result.
        token_features: Names of features of token ids `[rows, length]`, padded with 0 behind each
            row to one length. Each micro-batch is cut to the smallest of a few lengths that holds
            its rows, and rows of similar length share a micro-batch. Labels and weights with the
            same length are cut, too. The model must mask id 0; the first batch shows whether it
            does. Without effect with `clip_per_example`.
    """

    micro_batch_size: Annotated[int, COUNT, RUNTIME_ONLY]
    added_losses: AddedLosses | None = None
    transforms: tuple[GradientTransform, ...] = ()
    expected_rows: Annotated[int | None, COUNT, RUNTIME_ONLY] = None
    token_features: Annotated[tuple[str, ...], RUNTIME_ONLY] = ()
    # A run that stopped after too many skips can resume with a larger number.
    max_consecutive_skips: Annotated[int, COUNT, RUNTIME_ONLY] = 100

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> StepOptions:
        """Return the options from keyword arguments.

        Raises:
            ValueError: The message lists every wrong option with its value and a suggestion.
        """
        return parse_section(cls, options, section="")

    def fingerprint(self) -> dict[str, Json]:
        """Return the options that affect the result; with "ghost" micro_batch_size does."""
        size = {"micro_batch_size": self.micro_batch_size} if self.batch_norm == "ghost" else {}
        return {**super().fingerprint(), **size}

    @field_validator("micro_batch_size", mode="before")
    @classmethod
    def _check_micro_batch(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(
                "give a number of rows; find_micro_batch_size(...) measures the largest that fits, "
                'as "auto" does in a pipeline (training.micro_batch_size: auto)'
            )
        return value

    @field_validator("transforms", mode="before")
    @classmethod
    def _check_transforms(cls, value: object) -> tuple[GradientTransform, ...]:
        if not isinstance(value, (list, tuple)):
            raise ValueError("give a list of functions (gradients, variables) -> gradients")
        for transform in value:
            if not _takes_gradients(transform):
                raise ValueError(
                    f"{transform!r} does not take (gradients, variables); give a function of two "
                    "lists that returns the new gradients, with a third parameter named `step` if "
                    "it needs the number of the step"
                )
        return tuple(value)

    @field_serializer("transforms", when_used="json")
    def _transforms_as_code(self, value: tuple[GradientTransform, ...]) -> Json:
        # It imports Keras and TensorFlow, which are loaded wherever there is a step.
        from trainer_module.common.fingerprint import to_fingerprint

        return to_fingerprint(list(value))


def takes_step(transform: GradientTransform) -> bool:
    """Return whether a transform has a parameter `step`."""
    try:
        return "step" in inspect.signature(transform).parameters
    except (TypeError, ValueError):
        return False


def _takes_gradients(transform: object) -> bool:
    if not callable(transform):
        return False
    try:
        signature = inspect.signature(transform)
    except (TypeError, ValueError):
        return True  # written in C: it has no signature
    step = {"step": None} if "step" in signature.parameters else {}
    try:
        signature.bind(None, None, **step)
    except TypeError:
        return False
    return True
