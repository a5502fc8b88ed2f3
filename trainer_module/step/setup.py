"""Check the model, optimizer, loss and options of a step, and describe its windows."""

from __future__ import annotations

import operator
from typing import Any

import keras
import tensorflow as tf

from trainer_module.checks.compiled import (
    check_optimizer,
    warn_compile_args_ignored,
    warn_if_logits,
)
from trainer_module.checks.model import check_model, reject_custom_train_step
from trainer_module.checks.warn_once import warn_once
from trainer_module.common.tensors import LossLike, present_leaves, with_leaves
from trainer_module.devices.replicas import replica_kind
from trainer_module.gradients.layer_gradients import check_placement, plan_clipping
from trainer_module.losses.weighted_loss import as_loss_function
from trainer_module.options.step_options import StepOptions
from trainer_module.window.accumulation import Passes
from trainer_module.window.batch_norm import check_batch_norm
from trainer_module.window.describe import Description, check_rows, describe
from trainer_module.window.gradient_sum import default_added_losses
from trainer_module.window.micro_batch import micro_batch_gradients
from trainer_module.window.spec import Batch, WindowSpec
from trainer_module.window.update import check_transforms


class StepSetup:
    """A checked model, optimizer, loss and options, and the windows that they define.

    Attributes:
        options: The options, with `added_losses` resolved.
        loss_fn: `(labels, outputs, sample_weight) -> (numerator, denominator)`.
        spec: The model, the loss and the micro-batch size of the windows.
        variables: The trainable variables at construction.
        rows_checked: Whether a batch has shown that rows do not influence each other.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss_fn: LossLike,
        options: dict[str, Any],
        strategy: tf.distribute.Strategy,
    ) -> None:
        """Check the arguments, and build the optimizer in the strategy's scope.

        Raises:
            ValueError: See `TrainStep`.
        """
        given = StepOptions.parse(options)
        check_model(model, strategy)
        check_batch_norm(model, given.batch_norm)
        check_optimizer(optimizer, strategy)
        reject_custom_train_step(model, ("compute_loss", "train_step"), by="TrainStep")
        warn_compile_args_ignored(model, loss_fn, optimizer=optimizer)
        loss_fn = as_loss_function(loss_fn)
        warn_if_logits(model, loss_fn)
        check_transforms(given.transforms, model)
        if given.clip_per_example is not None:
            check_placement(model, given.clip_per_example)
        if given.batch_norm == "ghost":
            warn_once(
                f"batch_norm: ghost: micro-batches of {given.micro_batch_size} rows are normalised "
                "by their own statistics, so the update depends on micro_batch_size.",
                about=model,
            )
        added_losses = given.added_losses or default_added_losses(model)
        self.options = given.model_copy(update={"added_losses": added_losses})
        expected_rows = given.expected_rows
        if expected_rows is not None:
            expected_rows = max(1, expected_rows // strategy.num_replicas_in_sync)
        # "auto" is off where XLA would need the gradient of each row.
        clips = given.clip_per_example is not None
        jit_compile = given.jit_compile is True if clips else given.jit_compile
        self.loss_fn = loss_fn
        self.spec = WindowSpec(
            model=model,
            loss_fn=loss_fn,
            added_losses=added_losses,
            micro_batch_size=given.micro_batch_size,
            jit_compile=jit_compile,
            expected_rows=expected_rows,
            device_kind=replica_kind(strategy),
            batch_norm=given.batch_norm,
            token_features=() if clips else given.token_features,
        )
        self.optimizer = optimizer
        self.variables = list(model.trainable_variables)
        self._description: Description | None = None
        self._described_shapes = ""
        self._most_row_bytes = 0.0
        self.rows_checked = False
        with strategy.scope():
            if not optimizer.built:
                optimizer.build(self.variables)
                check_optimizer(optimizer, strategy)  # build() creates those of a MultiOptimizer
            if strategy.num_replicas_in_sync == 1:
                self.spec.placement.prepare_optimizer(optimizer)

    def check_variables(self) -> None:
        """Raise ValueError if the model's trainable variables have changed since construction."""
        now = self.spec.model.trainable_variables
        if len(now) != len(self.variables) or any(map(operator.is_not, now, self.variables)):
            raise ValueError(
                f"the model has {len(now)} trainable variables, and had others "
                f"({len(self.variables)}) when TrainStep was made: a layer was frozen, unfrozen, "
                "added or built since. Call the model on one row first, then make a new TrainStep "
                "(and optimizer)."
            )

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the windows; known after the first one."""
        return self._description is not None and self._description.is_compiled

    def describe(self, batch: Batch) -> Description:
        """Return the description of windows of the batch's shapes, traced if needed."""
        # Longer rows take more memory, and whether outputs share one Σ w depends on their shapes.
        shapes = [t.shape[1:] for t in present_leaves(batch)]
        if self._description is None or str(shapes) != self._described_shapes:
            description = describe(self.spec, batch)
            self._most_row_bytes = max(self._most_row_bytes, description.bytes_per_row)
            if not all(shape.is_fully_defined() for shape in shapes):
                # A trace counts an axis of unknown length as one element.
                description = description._replace(bytes_per_row=self._most_row_bytes)
            self._description, self._described_shapes = description, str(shapes)
            self.check_variables()  # a layer may be built only when it is called
        return self._description

    def check_rows(self, batch: Batch, specs: Batch | None = None) -> None:
        """Check with the first batch of two rows or more that rows do not influence each other.

        Raises:
            ValueError: Rows influence each other.
        """
        if not self.rows_checked:
            batch = with_leaves(batch, map(tf.convert_to_tensor, present_leaves(batch)))
            description = self.describe(specs or batch)
            self.rows_checked = check_rows(self.spec, batch, description)

    def passes(self, batch: Batch) -> Passes:
        """Return the passes over windows of the batch's shapes, one replica's part."""
        description = self.describe(batch)
        gradients, clip_norm = micro_batch_gradients, self.options.clip_per_example
        if clip_norm is not None:
            gradients = plan_clipping(self.spec, batch, description, clip_norm)
            description = description._replace(bytes_per_row=gradients.row_bytes)
        return Passes.of(
            self.spec,
            batch,
            description,
            gradients,
            merge_micro_batches=self.options.gradient_noise_scale is None,
        )
