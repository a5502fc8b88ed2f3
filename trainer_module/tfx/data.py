"""Read TFX's arguments that describe the transformed data."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorflow as tf

from shared_core.feature_layout import FeatureLayout
from shared_core.nearest import nearest
from trainer_module.config import TrainerConfig
from trainer_module.data.input_pipeline import Examples, expand
from trainer_module.data.row_source import Feature, PaddedFeature
from trainer_module.model.data_context import TransformedData

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs


def open_data(fn_args: FnArgs, config: TrainerConfig) -> TransformedData:
    """Return the transformed files of both splits and a description of their features."""
    import tensorflow_transform as tft

    uri = getattr(fn_args, "transform_output", None) or getattr(
        fn_args, "transform_graph_path", None
    )
    if not uri:
        raise ValueError(
            "trainer_module needs Transform's output: give the Trainer (and the Tuner) "
            'transform_graph=transform.outputs["transform_graph"] and '
            'examples=transform.outputs["transformed_examples"].'
        )
    transform_output = tft.TFTransformOutput(uri)
    spec: dict[str, Feature] = transform_output.transformed_feature_spec()
    layout = FeatureLayout.from_transform_graph(uri)
    label = config.label or (layout.label.name if layout and layout.label else None)
    if label is None:
        raise ValueError(
            "trainer.label is not set and Transform's output names none: give the transformed "
            f"feature to predict, one of {', '.join(sorted(spec))}."
        )
    weight = config.weight or (layout.weight if layout else None)
    for field, name in (("label", label), ("weight", weight)):
        if name is not None and name not in spec:
            raise ValueError(
                f"trainer.{field}={name!r} is not among the transformed features; "
                f"{nearest(name, (n for n in spec if field == 'label' or n != label))}"
            )
    if weight == label:
        raise ValueError(
            f"trainer.weight={weight!r} is the label too: a row would weigh what it is to predict, "
            "and rows of 0 would not count. Give another feature with weights, or leave it out."
        )
    if layout is not None:
        for name in (layout.missing, *layout.passthrough):
            if name is not None and name not in (label, weight):
                spec.pop(name, None)
    for tokens in layout.tokens if layout is not None else ():
        spec[tokens.name] = PaddedFeature((tokens.max_length,), tf.int64)
    for name, feature in spec.items():
        if not isinstance(feature, Feature):
            raise ValueError(
                f"transformed feature {name!r} has a varying number of values per row: make it "
                "dense in preprocessing_fn (tf.sparse.to_dense and a fixed shape), name it in "
                "features.passthrough, which no model takes, or use encode: tokens for texts."
            )
    images = layout.images if layout is not None else ()
    spec |= {image.name: tf.io.FixedLenFeature(image.shape, tf.uint8) for image in images}
    train_files = expand(fn_args.train_files or [], what="the train split of the examples")
    if not train_files:
        raise ValueError("the examples have no train split: give the Trainer transformed examples.")
    eval_files = expand(fn_args.eval_files or [], what="the eval split of the examples")
    declared = layout.label if layout and layout.label and layout.label.name == label else None
    is_count = declared and declared.kind == "regression" and spec[label].dtype == tf.int64
    dtype = tf.float64 if is_count else None
    train = Examples(train_files, spec, label, weight, label_dtype=dtype, images=images)
    return TransformedData(transform_output, layout, train, eval_files)


def split_files(fn_args: FnArgs, split: str) -> tuple[str, ...]:
    """Return the files of a split of the transformed examples; TFX passes only train and eval."""
    what = f"the {split} split of the examples"
    patterns = list(fn_args.eval_files or [])
    if split != "eval":
        folders = [os.path.dirname(os.path.dirname(pattern)) for pattern in patterns]
        patterns = [os.path.join(folder, f"Split-{split}", "*") for folder in folders]
    files = expand(patterns, what=what)
    if not files:
        raise ValueError(f"{what} has no files: name another split, or none.")
    return files
