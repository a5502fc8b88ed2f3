"""The user's `derive` function: imported, called, and its result checked.

    def derive(inputs: dict[str, Tensor | SparseTensor]) -> dict[str, Tensor | SparseTensor]

Its columns are new ones, `[batch]` or `[batch, 1]`; a missing number is NaN or absent from a
SparseTensor, a missing string is empty or absent. `transform.dense_numbers` and `dense_texts`
turn a raw column of any storage into such a vector.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from transform.block import Columns, ColumnTensor, tf
from transform.columns.inputs import tensor_type
from transform.spec.common import SeenType

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2


_DeriveFunction = Callable[[dict[str, ColumnTensor]], Columns]


def _load(path: str) -> _DeriveFunction:
    """Import `package.module.function`."""
    module_name, name = path.rsplit(".", 1)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(
            f"features.derive={path!r} cannot be imported: {type(error).__name__}: {error}. "
            "Give package.module.function of a module on the Python path."
        ) from error
    function: object = getattr(module, name, None)
    if not callable(function):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ValueError(
            f"features.derive={path!r}: module {module_name!r} has no function {name!r}; "
            f"it has: {', '.join(sorted(names)) or 'no function'}"
        )
    return cast("_DeriveFunction", function)


def derived_columns(path: str, inputs: Columns) -> dict[str, ColumnTensor]:
    """Call the function on all raw columns; ValueError: it fails, or returns no new columns."""
    function = _load(path)
    try:
        with tf.name_scope("derive"):  # in the messages of operations that fail inside Beam
            columns = function(dict(inputs))
    except KeyError as error:
        raise ValueError(
            f"features.derive={path!r} wants column {error} that the data lacks; "
            f"the data has: {', '.join(sorted(inputs))}"
        ) from error
    except Exception as error:
        raise ValueError(
            f"features.derive={path!r} failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(columns, Mapping):
        raise ValueError(
            f"features.derive={path!r} returned {type(columns).__name__}; "
            "return a dict of new columns, name -> Tensor or SparseTensor"
        )
    for name in columns:
        if name in inputs:
            raise ValueError(
                f"features.derive={path!r} returned column {name!r}, which the data has already; "
                "give the derived column a new name"
            )
    return dict(columns)


def derived_types(path: str, schema: schema_pb2.Schema) -> dict[str, SeenType]:
    """Name and type of each derived column, by tracing the function on placeholders."""
    from tensorflow_transform.tf_metadata import schema_utils

    spec = schema_utils.schema_as_feature_spec(schema).feature_spec
    with tf.Graph().as_default():
        inputs: dict[str, ColumnTensor] = {}
        for name, feature in spec.items():
            if isinstance(feature, tf.io.VarLenFeature):
                inputs[name] = tf.compat.v1.sparse_placeholder(feature.dtype, [None, None])
            elif isinstance(feature, tf.io.FixedLenFeature):
                inputs[name] = tf.compat.v1.placeholder(feature.dtype, [None, *feature.shape])
        columns = derived_columns(path, inputs)
        return {name: tensor_type(tensor) for name, tensor in columns.items()}


def _raw_sources(tensors: Iterable[ColumnTensor], inputs: Columns) -> set[str]:
    """Return the raw columns that `tensors` are computed from, found by walking the graph."""
    owner = {part.op.name: name for name, t in inputs.items() for part in _parts(t)}
    found: set[str] = set()
    seen: set[str] = set()
    stack = [part.op for tensor in tensors for part in _parts(tensor)]
    while stack:
        op = stack.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if op.name in owner:
            found.add(owner[op.name])
        else:
            stack += [source.op for source in op.inputs]
    return found


def refuse_leaks(
    names: Iterable[str], columns: Columns, inputs: Columns, sources: set[str]
) -> None:
    """Raise ValueError for a derived feature that rests on a column that only the label has.

    It would be absent at serving, and reveal the label in training.
    """
    names = list(names)
    if not _raw_sources([columns[name] for name in names], inputs) & sources:
        return
    for name in names:
        leaked = _raw_sources([columns[name]], inputs) & sources
        if leaked:
            raise ValueError(
                f"derived feature {name!r} is computed from {sorted(leaked)[0]!r}, which is in "
                "label.sources and so absent at serving; compute it from other columns, or "
                "remove it from the groups"
            )


def _parts(tensor: Any) -> list[tf.Tensor]:
    return tf.nest.flatten(tensor, expand_composites=True)
