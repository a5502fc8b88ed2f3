"""Store the columns of a linear model: numbers densely, 0/1 columns of ids sparsely.

A row has one id of hundreds, so the sparse columns make a product with a kernel ten times as fast.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainer_module.common.extras import load

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclasses.dataclass(frozen=True)
class DesignMatrix:
    """A matrix `[rows, width]`; the dense columns are the first ones.

    Attributes:
        dense: `[rows, numbers]` float64.
        sparse: `[rows, width - numbers]` float64.
    """

    dense: np.ndarray
    sparse: csr_array

    @classmethod
    def concatenate(cls, parts: Sequence[DesignMatrix]) -> DesignMatrix:
        """Return the rows of all parts."""
        vstack = load("scipy.sparse", "vstack", extra="tfx")
        dense = np.concatenate([part.dense for part in parts])
        return cls(dense, vstack([part.sparse for part in parts], format="csr"))

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.dense.shape[1] + self.sparse.shape[1]

    def without_last(self, columns: int) -> DesignMatrix:
        """Return the matrix without so many of the last columns, which are sparse."""
        return DesignMatrix(self.dense, self.sparse[:, : self.sparse.shape[1] - columns])

    def __getitem__(self, rows: np.ndarray | slice) -> DesignMatrix:
        """Return the rows with these indices."""
        return DesignMatrix(self.dense[rows], self.sparse[rows])

    def __matmul__(self, kernel: np.ndarray) -> np.ndarray:
        """Return the product with a kernel `[width, outputs]`."""
        numbers = self.dense.shape[1]
        return self.dense @ kernel[:numbers] + self.sparse @ kernel[numbers:]

    def transposed_matmul(self, values: np.ndarray) -> np.ndarray:
        """Return the product of the transposed matrix and values `[rows]` or `[rows, outputs]`."""
        return np.concatenate([self.dense.T @ values, self.sparse.T @ values])

    def gram(self, weights: np.ndarray) -> np.ndarray:
        """Return Σ w x xᵀ `[width, width]` over the rows x with weights w `[rows]`."""
        weighted = self.sparse.copy()
        weighted.data *= np.repeat(weights, np.diff(weighted.indptr))
        cross = weighted.T @ self.dense
        numbers = (self.dense * weights[:, None]).T @ self.dense
        return np.block([[numbers, cross.T], [cross, (weighted.T @ self.sparse).toarray()]])

    def to_array(self) -> np.ndarray:
        """Return all columns densely."""
        return np.hstack([self.dense, self.sparse.toarray()])
