"""Split a model into stages."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from shared_core.nearest import nearest


def split_model(model: keras.Model, after: Sequence[str]) -> list[keras.Model]:
    """Return the parts of a model; the input of each part is the output of the previous one.

    The parts share the model's layers and variables.

    Args:
        model: A Sequential or functional model.
        after: Names of the layers that end a part, in order. The later parts may only use the
            output of this layer.

    Raises:
        ValueError: The model is neither Sequential nor functional, a name is not a layer's, the
            names are not in order, or a later layer uses more than the output of the named layer.
    """
    if not isinstance(model, keras.Sequential) and not getattr(model, "inputs", None):
        raise ValueError(
            f"model {model.name!r} is neither Sequential nor functional: create the stages "
            "yourself."
        )
    names = [layer.name for layer in model.layers]
    for name in after:
        if name not in names:
            raise ValueError(
                f"after={name!r} is not a layer of model {model.name!r}; {nearest(name, names)}"
            )
    begin = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    outputs = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
    parts = []
    for number, name in enumerate(after):
        end = model.get_layer(name).output
        parts.append(_part(model, begin, end, number, after))
        begin = end
    parts.append(_part(model, begin, outputs, len(after), after))
    return parts


def _part(
    model: keras.Model, begin: object, end: object, number: int, after: Sequence[str]
) -> keras.Model:
    try:
        return keras.Model(begin, end, name=f"{model.name}_{number + 1}")
    except ValueError as error:
        raise ValueError(
            f"after={list(after)}: part {number + 1} of model {model.name!r} uses more than the "
            "output of the layer before it, or the names are not in order. Split after a layer "
            "whose output is the only input of the rest, or create the stages yourself."
        ) from error
