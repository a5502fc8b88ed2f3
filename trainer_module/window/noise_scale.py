"""Estimate the gradient noise scale from the passes of a window.

The n rows of a pass have the gradient sum s = Σ_i u_i, where u_i = w_i ∇l_i. If rows are
independent with mean G and covariance Σ,

    E |s|² = n² |G|² + n tr Σ.

The passes k of a window (of all replicas) and the window as a whole give two such equations, whose
solution is unbiased for passes of any sizes:

    |G|² = (|Σ_k s_k|² - Σ_k |s_k|²) / (N² - Σ_k n_k²),    tr Σ = (Σ_k |s_k|² - |G|² Σ_k n_k²) / N

tr Σ / |G|² is the simple noise scale of McCandlish et al., "An Empirical Model of Large-Batch
Training" (2018), appendix A, in rows. Both estimates are noisy, so they are averaged over windows
before the division.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from trainer_module.common.tensors import Gradient
from trainer_module.window.gradient_sum import GradientSum


def pass_squares(
    gradients: Sequence[Gradient], rows: tf.Tensor, is_measured: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Return |s_k|² and n_k² of one pass, `[2]`; zeros if the window is not measured.

    Args:
        gradients: s_k, one per trainable variable; None for a variable without a gradient.
        rows: n_k, scalar.
        is_measured: Scalar bool.
        dtype: Dtype of the result.
    """

    def squares() -> tf.Tensor:
        rows_squared = tf.square(tf.cast(rows, dtype))
        return tf.stack([squared_norm(gradients, dtype), rows_squared])

    return tf.cond(is_measured, squares, lambda: tf.zeros([2], dtype))


def squared_norm(gradients: Sequence[Gradient], dtype: tf.DType) -> tf.Tensor:
    """Return the squared global norm of gradients, computed in a dtype; scalar."""
    # A row of an embedding that several examples looked up is several slices: add them up first.
    dense = [tf.cast(tf.convert_to_tensor(g), dtype) for g in gradients if g is not None]
    return tf.add_n([tf.reduce_sum(tf.square(g)) for g in dense])


def noise_of_window(total: GradientSum) -> tf.Tensor:
    """Return |G|² and tr Σ of a measured window, `[2]`; NaN if all rows were in one pass.

    Args:
        total: Sums over all passes of all replicas, of which `squares` is not None.
    """
    assert total.squares is not None
    dtype = total.squares.dtype
    squares, rows_squared = tf.unstack(total.squares)
    rows = tf.cast(total.rows, dtype)
    divisor = tf.square(rows) - rows_squared
    nothing = tf.constant(float("nan"), dtype)
    signal = (squared_norm(total.gradients, dtype) - squares) / divisor
    noise = (squares - signal * rows_squared) / rows
    is_known = tf.logical_and(rows_squared > 0, divisor > 0)
    return tf.where(is_known, tf.stack([signal, noise]), nothing)
