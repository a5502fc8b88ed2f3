"""What is remembered of Beam's steps and options is what Beam finds."""

from __future__ import annotations

import inspect
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, TypeOptions
from apache_beam.transforms import core, userstate

from pipeline.run.beam_reflection import reflection_remembered


@pytest.fixture(autouse=True)
def _beams_functions(monkeypatch):
    """Beam's own functions outside the blocks under test: those of tests/conftest.py remember."""
    monkeypatch.setattr(
        core, "get_function_args_defaults", inspect.unwrap(core.get_function_args_defaults)
    )
    monkeypatch.setattr(PipelineOptions, "view_as", inspect.unwrap(PipelineOptions.view_as))


COUNT = beam.DoFn.StateParam(userstate.ReadModifyWriteStateSpec("count", VarIntCoder()))


class Number(beam.DoFn):
    """Numbers the values of a key."""

    def process(self, element: Any, count: Any = COUNT, offset: int = 10):
        number = count.read() or 0
        count.write(number + 1)
        yield element[0], number + offset


def with_default(x, times=2):
    return x * times


def test_views_share_the_values_of_their_options():
    with reflection_remembered():
        options = PipelineOptions(["--direct_num_workers=3"])
        assert options.view_as(DirectOptions) is options.view_as(DirectOptions)
        assert options.view_as(DirectOptions).direct_num_workers == 3
        options.view_as(TypeOptions).runtime_type_check = True
        assert options.view_as(TypeOptions).runtime_type_check is True
        other = PipelineOptions([])
        assert other.view_as(DirectOptions).direct_num_workers == 1
        assert other.view_as(TypeOptions).runtime_type_check is False


def test_a_pipeline_with_state_gives_the_same(tmp_path):
    def outputs(folder):
        with beam.Pipeline("FnApiRunner") as pipeline:
            _ = (
                pipeline
                | beam.Create([("a", 1), ("a", 2), ("b", 3)])
                | beam.ParDo(Number())
                | beam.MapTuple(lambda key, number, times=3: f"{key} {with_default(number, times)}")
                | beam.io.WriteToText(str(folder), shard_name_template="")
            )
        return sorted(folder.read_text().split("\n"))

    before = core.get_function_args_defaults, PipelineOptions.view_as
    with reflection_remembered():
        assert outputs(tmp_path / "remembered") == ["", "a 30", "a 33", "b 30"]
    assert (core.get_function_args_defaults, PipelineOptions.view_as) == before
