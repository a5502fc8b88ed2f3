"""Convert objects of a program to JSON values that are equal if the objects compute the same."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
import sys
import textwrap
import types
from collections.abc import Collection, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from trainer_module.common.code_fingerprint import is_library_file
from trainer_module.common.tensors import Json

_OURS = __name__.partition(".")[0]


def to_fingerprint(value: object, *, without: Collection[int] = ()) -> Json:
    """Return a JSON value that identifies an object.

    Plain values are unchanged; arrays become digests; Keras objects become their class and
    `get_config()`. A user's function or class becomes a digest of its code, of the functions that
    it names and of the values in its closure. A library's function or class becomes its name.
    Objects whose `id` is in `without` are left out.
    """
    seen = set(without)
    if isinstance(value, keras.Layer):
        return {"class": _class_code(type(value), seen), **_config(value, seen)}
    return _convert(value, seen)


def _convert(value: object, seen: set[int]) -> Json:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tf.Variable) and id(value) in seen:
        return None
    if isinstance(value, (np.ndarray, tf.Tensor, tf.Variable)):
        return array_digest(np.asarray(value))
    if isinstance(value, Mapping):
        return {str(key): _convert(each, seen) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(each, seen) for each in value]
    if isinstance(value, functools.partial):
        return [_convert(part, seen) for part in (value.func, value.args, value.keywords)]
    if isinstance(value, types.MethodType):
        return [_convert(value.__func__, seen), _convert(value.__self__, seen)]
    value = getattr(value, "python_function", value)  # of a tf.function
    if isinstance(value, types.FunctionType):
        return _function_code(value, seen)
    if isinstance(value, type):
        return _class_code(value, seen)
    if inspect.isroutine(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, (keras.Layer, tf.distribute.Strategy)):
        return type(value).__qualname__  # captured by a function; a model is compared separately
    return {"class": _class_code(type(value), seen), **_config(value, seen)}


def array_digest(array: np.ndarray) -> str:
    """Return dtype, shape and a digest of the values, as one string."""
    if array.dtype.kind in "OUS":
        values = repr(array.ravel().tolist()).encode()  # no two lists of texts have one
    else:
        # A view, since memoryview does not know bfloat16.
        values = np.ascontiguousarray(array).view(np.uint8).data if array.size else b""
    shape = ", ".join(str(size) for size in array.shape)
    return f"{array.dtype}[{shape}] {hashlib.sha256(values).hexdigest()[:16]}"


def _config(value: object, seen: set[int]) -> dict[str, Json]:
    get_config = getattr(value, "get_config", None)
    if get_config is None:
        # This package's losses are records of their options.
        is_loss = dataclasses.is_dataclass(value) and callable(value)
        if (_is_library(type(value)) and not is_loss) or id(value) in seen:
            return {}
        seen.add(id(value))
        return {key: _convert(each, seen) for key, each in getattr(value, "__dict__", {}).items()}
    try:
        # Some Keras losses omit options: get_config() of Huber lacks delta.
        config = {**get_config(), **getattr(value, "_fn_kwargs", {})}
    except (NotImplementedError, TypeError, ValueError):
        return {}  # its class identifies it
    return {key: _convert(each, seen) for key, each in config.items() if key != "name"}


def _class_code(kind: type, seen: set[int]) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if _is_library(kind) or id(kind) in seen:
        return name
    seen.add(id(kind))
    parts = [_class_code(base, seen) for base in kind.__bases__]
    for member in vars(kind).values():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        if isinstance(function, types.FunctionType):
            parts.append(_function_code(function, seen))
        elif isinstance(function, (bool, int, float, str)) and function is not kind.__doc__:
            parts.append(repr(function))
    return f"{name} {_digest(parts)}"


def _function_code(function: types.FunctionType, seen: set[int]) -> str:
    name = f"{function.__module__}.{function.__qualname__}"
    if id(function) in seen:
        return name
    seen.add(id(function))
    cells = [_content(cell) for cell in function.__closure__ or ()]
    if _is_library(function):
        # `weighted_loss` returns a function that holds the loss, tf.data wraps functions of users.
        return f"{name} {_digest([_convert(each, seen) for each in cells])}" if cells else name
    used = [function.__defaults__, function.__kwdefaults__, *cells]
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    used += [function.__globals__.get(name) for name in sorted(names)]
    used = [each for each in used if not isinstance(each, types.ModuleType)]
    parts = [_text(function), *(_convert(each, seen) for each in used)]
    return f"{name} {_digest(parts)}"


def _text(function: types.FunctionType) -> str:
    """Return a function's source without comments, or a lambda's bytecode, as it has no lines."""
    if function.__name__ != "<lambda>":
        try:
            return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(function))))
        except (OSError, SyntaxError, TypeError):
            pass
    return repr([_bytecode(code) for code in _codes(function.__code__)])


def _bytecode(code: types.CodeType) -> list[object]:
    plain = [each for each in code.co_consts if not isinstance(each, types.CodeType)]
    # The order of a set differs in each process.
    constants = [sorted(map(repr, c)) if isinstance(c, frozenset) else repr(c) for c in plain]
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def _is_library(thing: type | types.FunctionType) -> bool:
    package = (thing.__module__ or "builtins").partition(".")[0]
    if package in (_OURS, "builtins") or package in sys.stdlib_module_names - {"__main__"}:
        return package != "__main__"
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    return file is not None and is_library_file(file)


def _digest(parts: list[Json]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
