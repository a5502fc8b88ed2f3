"""Find the transformed features that a model takes."""

from __future__ import annotations

import keras

from shared_core.nearest import nearest
from trainer_module.model.model_context import ModelContext


def inputs_of(model: keras.Model, context: ModelContext) -> list[str]:
    """Return the transformed features that the model takes; all if it does not declare inputs.

    Raises:
        ValueError: An input is not a transformed feature.
    """
    tensors = getattr(model, "inputs", None)
    if not tensors:
        return list(context.feature_spec)
    structure = model.input
    names = list(structure) if isinstance(structure, dict) else [t.name for t in tensors]
    for name in names:
        if name not in context.feature_spec:
            if context.layout is not None and name in context.layout.passthrough:
                raise ValueError(
                    f"trainer.model_fn={context.config.model_fn!r} returned a model with an input "
                    f"{name!r}, which is in features.passthrough: models cannot use such columns. "
                    "Put it into a group of features instead."
                )
            raise ValueError(
                f"trainer.model_fn={context.config.model_fn!r} returned a model with an input "
                f"{name!r} that is not a transformed feature; {nearest(name, context.feature_spec)}"
            )
    return names
