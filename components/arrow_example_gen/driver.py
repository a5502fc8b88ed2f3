"""Resolves the placeholders of the input's patterns: before the node runs, or within it.

TFX resolves {SPAN}, {VERSION} and dates in ExampleGen's driver, to one span. This driver knows
windows of several too (`range_config`). Where the platform runs no driver, as Kubeflow, the
executor calls `resolve_input` itself, so that what is read and what is recorded is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from tfx.components.example_gen import driver as tfx_driver
from tfx.components.example_gen.input_processor import InputProcessor
from tfx.dsl.io import fileio
from tfx.types import Artifact
from tfx.utils import io_utils

from components.arrow_example_gen.spans import (
    SEPARATOR,
    Span,
    escape,
    has_placeholders,
    latest_spans,
)

# Of TFX's protos, which ship without types.
Message: TypeAlias = Any


class SpanProcessor(InputProcessor):
    """TFX's interface to a resolved input: span, version, patterns, fingerprint."""

    def __init__(self, folder: str, splits: Iterable[Message], range_config: Message = None):
        """Take the input's description; nothing is listed yet.

        Args:
            folder: `input_base`.
            splits: Input.Split messages.
            range_config: RangeConfig: a rolling range of any number of spans, or a static range
                of them; None: the latest span.
        """
        super().__init__(splits=splits, range_config=None)  # TFX's own refuses several spans
        self._folder = folder
        self._patterns = {split.name: split.pattern for split in splits}
        self._window = _window(range_config)
        self._spans: dict[str, list[Span]] = {}

    def resolve_span_and_version(self) -> tuple[int, int | None]:
        """List the files and choose the spans.

        Returns:
            The latest span's number and version; (0, None) without placeholders.

        Raises:
            ValueError: No span is there, or as of `latest_spans`.
        """
        found = {has_placeholders(pattern) for pattern in self._patterns.values()}
        if found == {True, False}:
            raise ValueError(
                f"{self._folder}: {self._patterns}: a span or date is in the pattern of one split "
                "alone; put it into each"
            )
        if found == {False}:
            if self._window:
                raise ValueError(
                    f"{self._folder}: {self._patterns}: range_config chooses among spans, and no "
                    "pattern has {SPAN} or a date"
                )
            return 0, None
        self._spans = latest_spans(self._folder, self._patterns, _glob, **self._window)
        latest = next(iter(self._spans.values()))[-1]
        return latest.number, latest.version

    def get_pattern_for_span_version(self, pattern: str, span: int, version: int | None) -> str:
        """Return the globs of the window's spans, as one text."""
        split = next((name for name, each in self._patterns.items() if each == pattern), None)
        if split is None or not self._spans:
            return pattern
        return SEPARATOR.join(each.pattern for each in self._spans[split])

    def get_latest_span(self) -> int:
        """Return the latest span's number."""
        return self.resolve_span_and_version()[0]

    def get_input_fingerprint(self, span: int, version: int | None) -> str:
        """Return sizes and times of all files that are read, as TFX's driver writes them."""
        lines = []
        for name, pattern in self._patterns.items():
            patterns = self.get_pattern_for_span_version(pattern, span, version).split(SEPARATOR)
            lines += [
                io_utils.generate_fingerprint(name, f"{escape(self._folder)}/{each}")
                for each in patterns
            ]
        return "\n".join(lines)


class Driver(tfx_driver.FileBasedDriver):
    """TFX's driver, with windows of several spans."""

    def get_input_processor(
        self,
        splits: Iterable[Message],
        range_config: Message = None,
        input_base_uri: str | None = None,
    ) -> InputProcessor:
        """Return ours in place of FileBasedInputProcessor."""
        return SpanProcessor(input_base_uri or "", splits, range_config)


def resolve_input(exec_properties: dict[str, Any], examples: Artifact) -> dict[str, Any]:
    """Resolve the input as ExampleGen's driver does, where none ran.

    Args:
        exec_properties: of the node, patterns with placeholders.
        examples: its output; gets span, version and fingerprint as the driver writes them.

    Returns:
        The execution properties with resolved patterns, span, version and fingerprint.

    Raises:
        ValueError: No span is there; the pattern and what is there are named.
    """
    nothing: Any = None
    found = _WithoutStore().resolve_exec_properties(dict(exec_properties), nothing, nothing)
    tfx_driver.update_output_artifact(found, examples.mlmd_artifact)
    return found


def _glob(pattern: str) -> list[str]:
    return [str(path) for path in fileio.glob(pattern)]


class _WithoutStore(Driver):
    """A driver that has no metadata store, and needs none to resolve its input."""

    def __init__(self) -> None:
        pass


def _window(range_config: Message) -> dict[str, int]:
    """Return the arguments of `latest_spans`; {}: the latest span."""
    if range_config is None:
        return {}
    if range_config.WhichOneof("range") == "static_range":
        first, last = (
            range_config.static_range.start_span_number,
            range_config.static_range.end_span_number,
        )
        if last < first:
            raise ValueError(f"range_config: end_span_number={last} is below {first}")
        return {"count": last - first + 1, "last": last}
    rolling = range_config.rolling_range
    if rolling.num_spans < 1:
        raise ValueError(f"range_config: num_spans={rolling.num_spans}; use 1 or more")
    return {"count": rolling.num_spans, "first": rolling.start_span_number}
