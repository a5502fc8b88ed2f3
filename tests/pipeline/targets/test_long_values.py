"""Values that are too long, or that the kubelet would change, on their way to a container."""

from __future__ import annotations

import pytest
from one_container import spec_of

from pipeline.targets.long_values import compress_properties, expand, find_oversized


def test_a_setting_that_the_kubelet_would_change_travels_compressed():
    for text in ("price$$", "$(HOME)"):
        task = {"inputs": {"parameters": {"p": {"runtimeValue": {"constant": text}}}}}
        compress_properties(task)
        packed = task["inputs"]["parameters"]["p"]["runtimeValue"]["constant"]
        assert "$" not in packed
        assert expand(packed) == text


def constants(size, count):
    values = {"w": {"runtimeValue": {"constant": "z" * size}}}
    task = {"componentRef": {"name": "write"}, "inputs": {"parameters": values}}
    return {f"t{n}": task for n in range(count)}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (spec_of(["true"], tasks=constants(200_000, 1)), "t0: its settings have 195 KiB"),
        (spec_of(["true"], tasks=constants(60_000, 3)), "root: its component has"),
        (spec_of(["true"], tasks=constants(100_000, 16)), "has 1,56"),
    ],
)
def test_what_is_too_large_to_start_is_named(spec, words):
    errors = find_oversized(spec, "kubeflow")
    assert any(words in error for error in errors), errors
