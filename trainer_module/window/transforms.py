"""Call and check gradient transforms: user functions on the mean gradient."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer_module.checks.model import find_assignment
from trainer_module.checks.randomness import find_stateful_draw
from trainer_module.common.tensors import Gradient, Variable, VariableValues
from trainer_module.options.step_options import GradientTransform, takes_step


def apply_transform(
    transform: GradientTransform,
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    *,
    step: tf.Tensor | None,
    values: VariableValues = (),
) -> list[Gradient]:
    """Return the transformed gradients.

    Args:
        transform: See `StepOptions.transforms`; it is called with the variables that have a
            gradient.
        gradients: Dense, one per variable; None for a variable without a gradient, which stays
            None.
        variables: Keras variables.
        step: Number of the optimizer step.
        values: See `VariableValues`.

    Raises:
        ValueError: The transform does not return one gradient of the same shape per gradient, or
            it updates a Keras variable.
    """
    pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
    given = [g for g, _ in pairs]
    options = {"step": step} if takes_step(transform) else {}
    # Reads of variables see `values`. Assignments are not stored; they are detected and rejected.
    scope = keras.StatelessScope(list(values), initialize_variables=False)
    with scope:
        returned = transform(list(given), [v for _, v in pairs], **options)
    before = {id(variable): value for variable, value in values}
    if any(value is not before.get(key) for key, value in scope.state_mapping.items()):
        raise ValueError(_UPDATES.format(name=_name(transform), what="a Keras variable or seed"))
    rest = iter(_checked(transform, given, [v for _, v in pairs], returned))
    return [None if g is None else next(rest) for g in gradients]


def check_transforms(transforms: Sequence[GradientTransform], model: keras.Model) -> None:
    """Trace each transform once, with a gradient for each trainable variable.

    Raises:
        ValueError: See `apply_transform`. Also, a transform assigns to a variable, which is in no
            checkpoint and which a skipped window does not undo, or draws random numbers from
            TensorFlow's state, which differ between replicas.
    """
    variables = model.trainable_variables
    specs = [tf.TensorSpec(v.shape, _gradient_dtype(v)) for v in variables]
    for transform in transforms:

        def call(
            step: tf.Tensor, *gradients: tf.Tensor, function: GradientTransform = transform
        ) -> list[Gradient]:
            return apply_transform(function, gradients, variables, step=step)

        traced = tf.function(call, autograph=False).get_concrete_function(
            tf.TensorSpec([], tf.int64), *specs
        )
        assigned = find_assignment(traced.graph)
        if assigned is not None:
            raise ValueError(_UPDATES.format(name=_name(transform), what=assigned))
        draw = find_stateful_draw(traced.graph)
        if draw is not None:
            raise ValueError(
                f"transforms: {_name(transform)} draws random numbers by {draw[0]} at {draw[1]!r}, "
                "from a state that differs between replicas and that no checkpoint has. Use "
                "tf.random.stateless_normal(shape, seed=[number, step]) with the parameter `step`."
            )


_UPDATES = (
    "transforms: {name} updates {what}: a transform is a function of gradients, variables and "
    "step. Skipped windows and checkpoints do not restore other state; compute it from `step`, or "
    "write an optimizer."
)


def _checked(
    transform: GradientTransform,
    given: Sequence[tf.Tensor],
    variables: Sequence[Variable],
    returned: object,
) -> list[tf.Tensor]:
    """Return the new gradients, each cast to the dtype of the given one."""
    if not isinstance(returned, (list, tuple)) or len(returned) != len(given):
        count = f" of {len(returned)}" if isinstance(returned, (list, tuple)) else ""
        raise ValueError(
            f"transforms: {_name(transform)} returned {type(returned).__name__}{count}: return a "
            f"list of {len(given)} gradients, one for each that it was given."
        )
    found = []
    for new, old, variable in zip(returned, given, variables, strict=True):
        shape = getattr(new, "shape", None)
        if shape is None or tf.TensorShape(shape) != old.shape:
            raise ValueError(
                f"transforms: {_name(transform)} returned shape {shape} for variable "
                f"{variable.path!r}: return a gradient of its shape, {old.shape}."
            )
        found.append(tf.cast(new, old.dtype))
    return found


def _gradient_dtype(variable: Variable) -> tf.DType:
    return tf.float64 if variable.dtype == "float64" else tf.float32


def _name(transform: GradientTransform) -> str:
    return getattr(transform, "__qualname__", None) or repr(transform)
