"""Synchronize the variables of a model and its optimizer between the chief and parameter servers.

on the chief    model.variables, optimizer.variables       checkpointed and exported
on servers      the same, each whole on one server         read and updated by workers
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.compiled import is_several
from trainer_module.common.tensors import Gradient, Variable, VariableValues


class _Pair(NamedTuple):
    """A variable of the chief, and the one on a server."""

    here: Variable
    there: Variable


class ServerVariables:
    """The variables of a model and its optimizer on the servers.

    Attributes:
        optimizer: A copy of the chief's optimizer with variables on the servers.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.ParameterServerStrategy,
    ) -> None:
        """Create the servers' variables with the values of the chief's variables.

        Raises:
            ValueError: The optimizer contains other optimizers, is Nadam, or excludes variables
                from weight decay by name.
        """
        _check(optimizer)
        with strategy.scope():
            self._model = [_Pair(v, _copy(v)) for v in model.variables]
            there = {id(pair.here): pair.there for pair in self._model}
            self._trained = [there[id(variable)] for variable in model.trainable_variables]
            self.optimizer = type(optimizer).from_config(optimizer.get_config())
            self.optimizer.build(self._trained)
        slots = zip(optimizer.variables, self.optimizer.variables, strict=True)
        self._all = [*self._model, *(_Pair(*pair) for pair in slots)]
        for pair in self._all:
            pair.there.value.assign(pair.here.numpy())
        self._seen = [np.array(pair.here.numpy()) for pair in self._all]
        self._read_all = tf.function(
            lambda: [_read(pair.there) for pair in self._all], autograph=False
        )

    def values(self) -> VariableValues:
        """Return the values of the model's variables; call it in a graph.

        Each value is a copy that is read once from the servers.
        """
        return [(pair.here, _read(pair.there)) for pair in self._model]

    def apply(self, gradients: Sequence[Gradient], iterations: tf.Tensor) -> None:
        """Update the servers' variables; call it inside `strategy.run`.

        Args:
            gradients: One per trainable variable of the model; None leaves the variable unchanged.
            iterations: Number of updates before this one, int64 scalar, for the learning rate
                schedule and the bias correction. It replaces the optimizer's counter: Keras reads,
                increments and assigns the counter, so one of two simultaneous updates would not be
                counted. The chief sets the counter.
        """
        updates = [
            (tf.cast(gradient, variable.dtype), variable)
            for gradient, variable in zip(gradients, self._trained, strict=True)
            if gradient is not None
        ]
        counter = self.optimizer.iterations
        scope = keras.StatelessScope([(counter, iterations)], initialize_variables=False)
        with scope:
            self.optimizer.apply([g for g, _ in updates], [v for _, v in updates])
        for _, variable in updates:  # values that a constraint has assigned
            value = scope.get_current_value(variable)
            if value is not None:
                variable.value.assign(value)

    def push(self) -> None:
        """Write variables to the servers that changed on the chief since the last `pull`."""
        for number, pair in enumerate(self._all):
            value = pair.here.numpy()
            if not np.array_equal(value, self._seen[number]):
                pair.there.value.assign(value)
                self._seen[number] = np.array(value)

    def pull(self) -> None:
        """Read all variables except the optimizer's counter from the servers to the chief."""
        for number, (pair, value) in enumerate(zip(self._all, self._read_all(), strict=True)):
            if pair.there is not self.optimizer.iterations:
                pair.here.value.assign(value)
                self._seen[number] = value.numpy()


def _check(optimizer: keras.optimizers.Optimizer) -> None:
    if is_several(optimizer):
        raise ValueError(
            f"optimizer {optimizer.name!r} contains other optimizers, which parameter servers do "
            "not support: use one optimizer for all variables."
        )
    if isinstance(optimizer, keras.optimizers.Nadam):
        raise ValueError(
            "Nadam keeps a product over steps, which it reads, multiplies and assigns, so one of "
            "two simultaneous factors would be lost; use Adam or AdamW."
        )
    if getattr(optimizer, "_exclude_from_weight_decay_pattern", None) or getattr(
        optimizer, "_exclude_from_weight_decay", None
    ):
        raise ValueError(
            f"optimizer {optimizer.name!r} excludes variables from weight decay by name, and the "
            "names differ on parameter servers: leave exclude_from_weight_decay out."
        )


def _copy(variable: Variable) -> Variable:
    copy = keras.Variable(
        variable.numpy(), dtype=variable.dtype, trainable=variable.trainable, name=variable.name
    )
    copy.constraint = variable.constraint
    return copy


def _read(variable: Variable) -> tf.Tensor:
    """Read without the casts of a dtype policy, and copy, so that a window uses one value."""
    return tf.identity(variable.value)
