"""A model's variables and its optimizer on parameter servers, and a copy of them on the chief.

on the chief    model.variables, optimizer.variables     what is checkpointed and exported
on servers      the same, large ones cut by rows         what workers read and update
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.several_optimizers import is_several
from trainer_module.common.tensors import Gradient, Variable

# Whose update of an element knows no other element of the variable: it may be cut anywhere.
_BY_ELEMENT = frozenset(
    ["SGD", "Adam", "AdamW", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Ftrl", "Lion"]
)

Partitioner = Callable[..., Sequence[int]]


class _Pair(NamedTuple):
    """A variable of the chief, and its rows on the servers."""

    here: Any
    there: list[Any]


class ServerVariables:
    """The servers' variables.

    Attributes:
        optimizer: One as the chief's, whose variables are on the servers.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.ParameterServerStrategy,
        partitioner: Partitioner,
    ) -> None:
        """Creates the servers' variables with the values of the chief's.

        Args:
            model: Built, outside of the strategy's scope.
            optimizer: Built on the model's trainable variables, outside of it too.
            strategy: Where the servers are.
            partitioner: As those of tf.distribute.experimental.partitioners: how many parts of its
                rows a variable becomes.

        Raises:
            ValueError: An optimizer that has others within it, Nadam, or weight decay by name.
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

    def values(self) -> list[tuple[Any, tf.Tensor]]:
        """Returns each of the model's variables with its value, read now, once; in a graph."""
        return [(pair.here, _joined(pair.there)) for pair in self._model]

    def apply(self, gradients: Sequence[Gradient], iterations: tf.Tensor) -> None:
        """Updates the servers' variables, inside `strategy.run`.

        Args:
            gradients: One per trainable variable of the model; None for one to leave alone.
            iterations: How many updates there were before this one, for the schedule and for what
                corrects a bias. Keras reads its own counter, adds and assigns, so that of two
                workers at once one would be lost: it is left alone, and the chief sets it.
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
        for _, variable in cut:  # what a constraint has assigned
            value = scope.get_current_value(variable)
            if value is not None:
                variable.value.assign(value)

    def push(self) -> None:
        """Writes what has changed on the chief since it was last pulled to the servers."""
        for number, pair in enumerate(self._all):
            value = pair.here.numpy()
            if not np.array_equal(value, self._seen[number]):
                _write(pair)
                self._seen[number] = np.array(value)

    def pull(self) -> None:
        """Reads all from the servers into the chief's variables, but the optimizer's counter."""
        for number, (pair, value) in enumerate(zip(self._all, self._read_all(), strict=True)):
            if pair.there[0] is not self.optimizer.iterations:
                pair.here.value.assign(value)
                self._seen[number] = value.numpy()


def _check(optimizer: keras.optimizers.Optimizer) -> None:
    if is_several(optimizer):
        raise ValueError(
            f"optimizer {optimizer.name!r} has others within it, which parameter servers do not "
            "take: use one optimizer for all variables."
        )
    if isinstance(optimizer, keras.optimizers.Nadam):
        raise ValueError(
            "Nadam keeps a product over steps, which it reads, multiplies and assigns: of two "
            "workers at once one factor would be lost; use Adam or AdamW."
        )
    if getattr(optimizer, "_exclude_from_weight_decay_pattern", None) or getattr(
        optimizer, "_exclude_from_weight_decay", None
    ):
        raise ValueError(
            f"optimizer {optimizer.name!r} leaves variables out of weight decay by name, and those "
            "on parameter servers have others: leave exclude_from_weight_decay out."
        )


def _parts_of(variable: Variable, parts: int) -> list[Any]:
    values = np.array_split(variable.numpy(), parts) if parts > 1 else [variable.numpy()]
    found = []
    for value in values:
        part = keras.Variable(
            value, dtype=variable.dtype, trainable=variable.trainable, name=variable.name
        )
        part.constraint = variable.constraint
        found.append(part)
    return found


def _joined(parts: list[Any]) -> tf.Tensor:
    # Read outside of any dtype policy's casts, and copied: a worker's window has one value.
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


Slot = tuple[int, Any]


def _build(optimizer: Any, variables: list[Variable]) -> list[Slot | None]:
    """Builds the optimizer; returns which variable each of its own belongs to, and as what."""
    place = {id(variable): i for i, variable in enumerate(variables)}
    found: dict[int, Slot] = {}
    add = optimizer.add_variable_from_reference

    def recorded(reference_variable: Any, name: Any = None, **options: Any) -> Any:
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
    here: Sequence[Any],
    here_slots: list[Slot | None],
    there: Sequence[Any],
    there_slots: list[Slot | None],
    owner: list[tuple[int, int]],
) -> list[_Pair]:
    """Returns the chief's optimizer's variables with the servers'."""
    others = iter([v for v, slot in zip(there, there_slots, strict=True) if slot is None])
    parts: dict[Slot, dict[int, Any]] = {}
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
