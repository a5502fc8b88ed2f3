"""Compute the class weights of training from the settings and the training rows.

    balanced: the weight of class c is  W / (K W_c),  W_c = Σ_i w_i over its rows, W = Σ_c W_c

K is the number of classes with weight, so that each of them weighs W / K in total. Without row
weights this equals `class_weight="balanced"` of scikit-learn. In training, class weights multiply
row weights. Evaluation does not use class weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from absl import logging

from shared_core.nearest import nearest
from trainer_module.data.input_pipeline import DataSummary
from trainer_module.model.data_context import TransformedData
from trainer_module.model.model_context import ModelContext, TransformOutput

_LABEL_CLASSES = "label_classes"
"""Asset of a transform graph that lists the classes of a text label, one per line."""


def find_class_weights(
    context: ModelContext, data: TransformedData, summary: DataSummary
) -> dict[int, float] | Mapping[int | str, float] | str | None:
    """Return the weights by class number; for a regression, the unchanged setting.

    Raises:
        ValueError: The label has no such class, or too many for "balanced".
    """
    setting = context.config.class_weight
    if not setting or context.label_kind == "regression":
        return setting
    names = class_names(data.transform_output)
    if setting == "balanced":
        sums = summary.class_sums
        if sums is None:
            raise ValueError(
                f"trainer.class_weight='balanced': trainer.label={context.label!r} has more than "
                "10,000 values; give weights by class."
            )
        found = balanced(sums)
    else:
        assert not isinstance(setting, str)
        found = _by_number(setting, names, outputs=context.outputs, kind=context.label_kind)
    shown = [
        f"{names[c] if c < len(names) else c} {weight:.4g}" for c, weight in sorted(found.items())
    ]
    logging.info(
        "Weights of classes in training, not in evaluation: %s",
        ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else ""),
    )
    return found


def balanced(sums: Mapping[int, float]) -> dict[int, float]:
    """Return weights by class from the sums of row weights by class; see the module."""
    positive = {c: of_class for c, of_class in sums.items() if of_class > 0}
    share = sum(positive.values()) / len(positive)
    return {c: share / of_class for c, of_class in positive.items()}


def _by_number(
    setting: Mapping[int | str, float], names: Sequence[str], *, outputs: int, kind: str
) -> dict[int, float]:
    """Return weights by class number from weights by number or name.

    Args:
        setting: The configured weights.
        names: Class names of a string label, by number; empty for other labels.
        outputs: Number of classes of a multiclass label.
        kind: binary or multiclass.

    Raises:
        ValueError: A key is not a class. The message lists the classes.
    """
    classes = 2 if kind == "binary" else outputs
    found: dict[int, float] = {}
    for key, weight in setting.items():
        if isinstance(key, str):
            if key not in names:
                known = nearest(key, names) if names else "the label's classes have no names"
                raise ValueError(
                    f"trainer.class_weight: {key!r} is not a class of the label; {known}; or use "
                    f"a number from 0 to {classes - 1}"
                )
            number = names.index(key)
        else:
            number = key
        if number >= classes:
            raise ValueError(
                f"trainer.class_weight: the label has no class {number}; its classes are 0 to "
                f"{classes - 1}"
            )
        if number in found:
            raise ValueError(
                f"trainer.class_weight: class {number} ({names[number]!r}) is listed by number and "
                "by name; remove one"
            )
        found[number] = weight
    return found


def class_names(transform_output: TransformOutput | None) -> list[str]:
    """Return the classes of a string label in the order of their numbers; empty for others."""
    if transform_output is None or not transform_output.vocabulary_file_by_name(_LABEL_CLASSES):
        return []
    return [name.decode() for name in transform_output.vocabulary_by_name(_LABEL_CLASSES)]
