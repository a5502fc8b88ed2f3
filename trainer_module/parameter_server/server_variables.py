"""Synchronize the variables of a model and its optimizer between the chief and parameter servers.

on the chief    model.variables, optimizer.variables       checkpointed and exported
on servers      the same, large variables split by rows    read and updated by workers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.checks.compiled import is_several
from trainer_module.common.tensors import Gradient, Variable, VariableValues

# Their update of an element does not depend on other elements, so variables can be split anywhere.
_BY_ELEMENT = frozenset(
    ["SGD", "Adam", "AdamW", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Ftrl", "Lion"]
)

Partitioner = Callable[..., Sequence[int]]


class _Pair(NamedTuple):
    """A variable of the chief, and the variables on the servers that hold its rows."""

    here: Variable
    there: list[Variable]


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
        partitioner: Partitioner,
    ) -> None:
        """Create the servers' variables with the values of the chief's variables.

        Args:
            model: The chief's model, built outside of the strategy's scope.
            optimizer: The chief's optimizer, built on the model's trainable variables outside of
                the strategy's scope.
            strategy: The strategy of the servers.
            partitioner: Function of shape and dtype, as in tf.distribute.experimental.partitioners.
                It returns the number of parts per axis; only the rows (axis 0) are split.

        Raises:
            ValueError: The optimizer contains other optimizers, is Nadam, or excludes variables
                from weight decay by name.
        """
        _check(optimizer)
        trained = {id(variable) for variable in model.trainable_variables}
        by_element = type(optimizer).__name__ in _BY_ELEMENT

        def parts(variable: Variable) -> int:
            cut = by_element and id(variable) in trained and variable.constraint is None
            if not cut or not variable.shape:
                return 1
            return int(partitioner(variable.shape, tf.as_dtype(variable.dtype))[0])

        with strategy.scope():
            self._model = [_Pair(v, _parts_of(v, parts(v))) for v in model.variables]
            self._trained = [
                next(pair for pair in self._model if pair.here is variable)
                for variable in model.trainable_variables
            ]
            self.optimizer = type(optimizer).from_config(optimizer.get_config())
            shards = [shard for pair in self._trained for shard in pair.there]
            owner = [(i, n) for i, pair in enumerate(self._trained) for n in range(len(pair.there))]
            there = _build(self.optimizer, shards)
        copy = type(optimizer).from_config(optimizer.get_config())
        here = _build(copy, list(model.trainable_variables))
        self._optimizer = _pairs(optimizer.variables, here, self.optimizer.variables, there, owner)
        self._all = [*self._model, *self._optimizer]
        self._seen = [np.array(pair.here.numpy()) for pair in self._all]
        for pair in self._optimizer:
            _write(pair)
        self._read_all = tf.function(
            lambda: [_joined(pair.there) for pair in self._all], autograph=False
        )

    def values(self) -> VariableValues:
        """Return the values of the model's variables; call it in a graph.

        Each value is a copy that is read once from the servers.
        """
        return [(pair.here, _joined(pair.there)) for pair in self._model]

    def apply(self, gradients: Sequence[Gradient], iterations: tf.Tensor) -> None:
        """Update the servers' variables; call it inside `strategy.run`.

        Args:
            gradients: One per trainable variable of the model; None leaves the variable unchanged.
            iterations: Number of updates before this one, int64 scalar, for the learning rate
                schedule and the bias correction. It replaces the optimizer's counter: Keras reads,
                increments and assigns the counter, so one of two simultaneous updates would not be
                counted. The chief sets the counter.
        """
        cut = []
        for pair, gradient in zip(self._trained, gradients, strict=True):
            if gradient is None:
                continue
            gradient = tf.cast(gradient, pair.here.dtype)
            sizes = [shard.shape[0] for shard in pair.there if len(pair.there) > 1]
            parts = tf.split(gradient, sizes) if sizes else [gradient]
            cut += zip(parts, pair.there, strict=True)
        counter = self.optimizer.iterations
        scope = keras.StatelessScope([(counter, iterations)], initialize_variables=False)
        with scope:
            self.optimizer.apply([g for g, _ in cut], [v for _, v in cut])
        for _, variable in cut:  # values that a constraint has assigned
            value = scope.get_current_value(variable)
            if value is not None:
                variable.value.assign(value)

    def push(self) -> None:
        """Write variables to the servers that changed on the chief since the last `pull`."""
        for number, pair in enumerate(self._all):
            value = pair.here.numpy()
            if not np.array_equal(value, self._seen[number]):
                _write(pair)
                self._seen[number] = np.array(value)

    def pull(self) -> None:
        """Read all variables except the optimizer's counter from the servers to the chief."""
        for number, (pair, value) in enumerate(zip(self._all, self._read_all(), strict=True)):
            if pair.there[0] is not self.optimizer.iterations:
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


def _parts_of(variable: Variable, parts: int) -> list[Variable]:
    values = np.array_split(variable.numpy(), parts) if parts > 1 else [variable.numpy()]
    found = []
    for value in values:
        part = keras.Variable(
            value, dtype=variable.dtype, trainable=variable.trainable, name=variable.name
        )
        part.constraint = variable.constraint
        found.append(part)
    return found


def _joined(parts: list[Variable]) -> tf.Tensor:
    # Read without the casts of a dtype policy, and copied, so that a window uses one value.
    values = [tf.identity(part.value) for part in parts]
    return tf.concat(values, 0) if len(values) > 1 else values[0]


def _write(pair: _Pair) -> None:
    begin = 0
    whole = pair.here.numpy()
    for part in pair.there:
        if len(pair.there) == 1:
            part.value.assign(whole)
            return
        part.value.assign(whole[begin : begin + part.shape[0]])
        begin += part.shape[0]


# The index of a variable, and the name of one of its slots.
Slot = tuple[int, str | None]


def _build(optimizer: keras.optimizers.Optimizer, variables: list[Variable]) -> list[Slot | None]:
    """Build the optimizer, and return the slot of each of its variables.

    Args:
        optimizer: A Keras optimizer that is not built.
        variables: The variables to optimize.

    Returns:
        (index in `variables`, slot name) per optimizer variable; None for a variable that belongs
        to no single variable.
    """
    place = {id(variable): i for i, variable in enumerate(variables)}
    found: dict[int, Slot] = {}
    add = optimizer.add_variable_from_reference

    def recorded(
        reference_variable: Variable, name: str | None = None, **options: object
    ) -> Variable:
        variable = add(reference_variable, name=name, **options)
        found[id(variable)] = (place[id(reference_variable)], name)
        return variable

    optimizer.add_variable_from_reference = recorded
    try:
        optimizer.build(variables)
    finally:
        del optimizer.add_variable_from_reference
    return [found.get(id(variable)) for variable in optimizer.variables]


def _pairs(
    here: Sequence[Variable],
    here_slots: list[Slot | None],
    there: Sequence[Variable],
    there_slots: list[Slot | None],
    owner: list[tuple[int, int]],
) -> list[_Pair]:
    """Pair the variables of the chief's optimizer with those of the servers' optimizer.

    Args:
        here: Variables of the chief's optimizer.
        here_slots: Their slots, from `_build`.
        there: Variables of the servers' optimizer.
        there_slots: Their slots, from `_build`.
        owner: (index of the chief's variable, index of the part) of each variable on the servers.

    Returns:
        One pair per variable of the chief's optimizer, in the order of `here`.
    """
    others = iter([v for v, slot in zip(there, there_slots, strict=True) if slot is None])
    parts: dict[Slot, dict[int, Variable]] = {}
    for variable, slot in zip(there, there_slots, strict=True):
        if slot is not None:
            number, part = owner[slot[0]]
            parts.setdefault((number, slot[1]), {})[part] = variable
    found = []
    for variable, slot in zip(here, here_slots, strict=True):
        if slot is None:
            found.append(_Pair(variable, [next(others)]))
        else:
            of_slot = parts[slot]
            found.append(_Pair(variable, [of_slot[n] for n in sorted(of_slot)]))
    return found
