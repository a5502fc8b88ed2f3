"""The hidden layers of the default model, by `model.kind`.

    mlp        Dense, activation, dropout, for each entry of hidden_units
    residual   a Dense layer of hidden_units[0] units, and for each entry the block
                   x + dropout(Dense(dropout(activation(Dense(LayerNorm(x))))))
               whose inner layer has that many units; then activation(LayerNorm(x)). This is the
               ResNet of Gorishniy et al., "Revisiting deep learning models for tabular data"
               (2021), whose BatchNorm is replaced, because its statistics depend on the batch.
    tabm       as mlp, for each member of a batch ensemble: s_k * Dense(r_k * x) + bias_k, with one
               Dense layer for all members (Gorishniy et al., "TabM", 2024). Only the first r_k
               starts at random signs, all others at 1.

With `low_rank` or `sparsity`, these Dense layers are LowRankDense or PrunedDense.
"""

from __future__ import annotations

import keras

from trainer_module.layers.low_rank_dense import LowRankDense
from trainer_module.layers.pruned_dense import PrunedDense
from trainer_module.model.member_layers import MemberScale
from trainer_module.options.model_config import ModelConfig

_EPSILON = 1e-5  # of LayerNormalization, as in the reference implementation
_MASK_UPDATES = 20


def hidden_layers(
    inputs: keras.KerasTensor, config: ModelConfig, total_steps: int = 0
) -> keras.KerasTensor:
    """Return the output of the hidden layers.

    Args:
        inputs: `[rows, size]`.
        config: Kind, units, activation, dropout, members, low rank and sparsity.
        total_steps: Optimizer steps of the whole run, for the schedule of `sparsity`.

    Returns:
        `[rows, units]`; for tabm `[rows, members, units]`.

    Raises:
        ValueError: `low_rank` reduces no layer, or `sparsity` is set and `total_steps` is 0.
    """
    if config.low_rank is not None:
        _check_low_rank(config, inputs.shape[-1])
    layers = _Layers(config, total_steps)
    if config.kind == "residual":
        return layers.residual(inputs)
    if config.kind == "tabm":
        return layers.tabm(inputs)
    return layers.mlp(inputs)


class _Layers:
    """The layers of a configuration."""

    def __init__(self, config: ModelConfig, total_steps: int) -> None:
        self.config = config
        self.total_steps = total_steps

    def mlp(self, hidden: keras.KerasTensor) -> keras.KerasTensor:
        for units in self.config.hidden_units:
            hidden = self.dropout(self.dense(hidden, units, activation=self.config.activation))
        return hidden

    def residual(self, hidden: keras.KerasTensor) -> keras.KerasTensor:
        width = self.config.hidden_units[0]
        hidden = self.dense(hidden, width)
        for units in self.config.hidden_units:
            normal = keras.layers.LayerNormalization(epsilon=_EPSILON)(hidden)
            inner = self.dense(normal, units, activation=self.config.activation)
            added = self.dropout(self.dense(self.dropout(inner), width))
            hidden = keras.layers.Add()([hidden, added])
        hidden = keras.layers.LayerNormalization(epsilon=_EPSILON)(hidden)
        return self.activation(hidden)

    def tabm(self, hidden: keras.KerasTensor) -> keras.KerasTensor:
        members = self.config.ensemble_size
        for place, units in enumerate(self.config.hidden_units):
            scaled = MemberScale(members, signs=place == 0)(hidden)
            product = self.dense(scaled, units, use_bias=False)
            hidden = MemberScale(members, use_bias=True)(product)
            hidden = self.dropout(self.activation(hidden, place))
        return hidden

    def dense(
        self,
        inputs: keras.KerasTensor,
        units: int,
        activation: str | None = None,
        *,
        use_bias: bool = True,
    ) -> keras.KerasTensor:
        options = {"activation": activation, "use_bias": use_bias}
        rank, sparsity = self.config.low_rank, self.config.sparsity
        if rank is not None and _is_smaller(rank, inputs.shape[-1], units):
            return LowRankDense(units, rank, **options)(inputs)
        if sparsity is not None:
            begin, end, every = pruning_schedule(self.total_steps)
            return PrunedDense(units, sparsity, begin, end, every, **options)(inputs)
        return keras.layers.Dense(units, **options)(inputs)

    def activation(self, hidden: keras.KerasTensor, place: int = 0) -> keras.KerasTensor:
        # A name, because the layer of the outputs is called "activation".
        name = f"hidden_activation_{place}"
        return keras.layers.Activation(self.config.activation, name=name)(hidden)

    def dropout(self, hidden: keras.KerasTensor) -> keras.KerasTensor:
        rate = self.config.dropout
        return keras.layers.Dropout(rate)(hidden) if rate else hidden


def pruning_schedule(total_steps: int) -> tuple[int, int, int]:
    """Return the first and last step of the pruning, and the steps between two updates.

    It takes the second to fifth tenth of a run, so that half of the steps follow it.

    Raises:
        ValueError: `total_steps` is 0, which means unknown.
    """
    if total_steps < 1:
        raise ValueError(
            f"trainer.model.sparsity needs the length of the run, and total_steps={total_steps}: "
            "give ModelContext(total_steps=...) the optimizer steps of the whole run."
        )
    begin = total_steps // 10
    end = max(begin + 1, total_steps // 2)
    return begin, end, max(1, (end - begin) // _MASK_UPDATES)


def _check_low_rank(config: ModelConfig, inputs: int) -> None:
    """Raise ValueError if no layer gets fewer weights."""
    rank = config.low_rank
    assert rank is not None
    if config.kind == "residual":
        width = config.hidden_units[0]
        shapes = [(inputs, width), *((width, units) for units in config.hidden_units)]
    else:
        shapes = list(zip((inputs, *config.hidden_units), config.hidden_units, strict=False))
    if any(_is_smaller(rank, *shape) for shape in shapes):
        return
    most = max((size * units - 1) // (size + units) for size, units in shapes)
    sizes = ", ".join(f"{size} x {units}" for size, units in shapes)
    use = f"use {most} or less, or null" if most else "leave it out"
    raise ValueError(
        f"trainer.model.low_rank={rank} would give no hidden layer fewer weights (inputs x units: "
        f"{sizes}): {use}."
    )


def _is_smaller(rank: int, inputs: int, units: int) -> bool:
    """Return whether a kernel of this rank has fewer weights than a whole one."""
    return rank * (inputs + units) < inputs * units
