"""Remember what Beam looks up repeatedly while it builds and starts the steps of a pipeline.

For each of its steps, Beam inspects the signatures of about 30 methods up to eight times, nearly
all of them inherited from `DoFn`, and parses the command line up to three times. In a run on few
rows, that takes longer than the rows.
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def reflection_remembered() -> Iterator[None]:
    """Inspect each method once, and parse the options once per class, during the block."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.transforms import core

    inspect_arguments, view_as = core.get_function_args_defaults, PipelineOptions.view_as
    core.get_function_args_defaults = _remember_methods(inspect_arguments)
    PipelineOptions.view_as = _remember_views(view_as)
    try:
        yield
    finally:
        core.get_function_args_defaults = inspect_arguments
        PipelineOptions.view_as = view_as


def _remember_methods(inspect_arguments: Any) -> Any:
    """Return a function that remembers the arguments of methods, by the function behind them."""
    known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @functools.wraps(inspect_arguments)
    def arguments(f: Any) -> tuple[list[str], list[Any]]:
        if not isinstance(f, types.MethodType) or not isinstance(f.__func__, types.FunctionType):
            return inspect_arguments(f)
        if f.__func__ not in known:
            known[f.__func__] = inspect_arguments(f)
        names, defaults = known[f.__func__]
        return [*names], [*defaults]

    return arguments


def _remember_views(view_as: Any) -> Any:
    """Return a method that remembers the views of options: they share the values of the options."""
    known: weakref.WeakKeyDictionary[Any, dict[type, Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(view_as)
    def view(options: Any, kind: type) -> Any:
        views = known.setdefault(options, {})
        if kind not in views or views[kind]._all_options is not options._all_options:
            views[kind] = view_as(options, kind)
        return views[kind]

    return view
