"""`beam:` in the YAML: what each engine stands for, and what is refused in which words."""

from __future__ import annotations

import grimp
import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config, load_engine
from pipeline.engines.flink import Flink
from pipeline.engines.in_memory import InMemory
from pipeline.engines.multi_processing import MultiProcessing
from pipeline.engines.table import ENGINES

DATAFLOW = (
    "beam.project=my-project",
    "beam.region=europe-west1",
    "beam.temp_location=gs://my-bucket/tmp",
    "beam.sdk_container_image=registry/image",
)


def refusal(engine: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_engine(engine, overrides)
    return str(caught.value)


def test_without_a_beam_section_one_process_of_this_machine_runs_it(write):
    engine = load_config(write()).beam
    assert isinstance(engine, InMemory)
    assert "--runner=FnApiRunner" in engine.pipeline_args()


def test_the_engine_is_the_only_thing_that_changes(write):
    args = load_config(write(), ["beam.engine=flink"]).beam.pipeline_args()
    for expected in (
        "--runner=PortableRunner",
        "--job_endpoint=localhost:8099",
        "--environment_type=LOOPBACK",
        "--parallelism=2",
    ):
        assert expected in args


def test_workers_of_the_pool():
    args = load_engine("flink", ["beam.environment=external"]).pipeline_args()
    assert "--environment_type=EXTERNAL" in args
    assert "--environment_config=localhost:50000" in args


def test_workers_in_containers():
    args = load_engine(
        "spark", ["beam.environment=docker", "beam.worker_image=registry/image:1"]
    ).pipeline_args()
    assert "--environment_type=DOCKER" in args
    assert "--environment_config=registry/image:1" in args


def test_dataflow():
    args = load_engine("dataflow", [*DATAFLOW, "beam.max_workers=8"]).pipeline_args()
    assert args == [
        "--runner=DataflowRunner",
        "--project=my-project",
        "--region=europe-west1",
        "--temp_location=gs://my-bucket/tmp",
        "--sdk_container_image=registry/image",
        "--max_num_workers=8",
    ]


def test_further_options_come_last():
    engine = MultiProcessing(workers=2, extra_args=("--direct_num_workers_x=1",))
    assert engine.pipeline_args()[-1] == "--direct_num_workers_x=1"


@pytest.mark.parametrize(
    ("engine", "overrides", "messages"),
    [
        ("DaskRunner", (), ["'DaskRunner' is not offered", "silently wrong results"]),
        ("dask", (), ["is not offered"]),
        ("DirectRunner", (), ["is not offered", "download another runner (Prism)", "in_memory"]),
        ("direct", (), ["is not offered"]),
        ("prism", (), ["is not offered"]),
        ("flnk", (), ["'flnk' is unknown. Did you mean 'flink'?", "multi_processing"]),
        ("in_memory", ("beam.workers=2",), ["workers=2 needs engine: multi_processing"]),
        ("in_memory", ("beam.parallelism=2",), ["beam.parallelism: unknown key"]),
        ("flink", ("beam.paralelism=2",), ["Did you mean 'parallelism'?"]),
        ("flink", ("beam.parallelism=0",), ["beam.parallelism=0"]),
        ("flink", ("beam.job_endpoint=localhost",), ["expected host:port"]),
        ("flink", ("beam.rest=http://localhost:8081",), ["expected host:port"]),
        ("flink", ("beam.worker_pool=localhost:99999",), ["expected host:port"]),
        ("flink", ("beam.environment=docker",), ["docker needs worker_image"]),
        ("flink", ("beam.worker_image=a/b",), ["worker_image=a/b needs environment: docker"]),
        ("flink", ("beam.extra_args=[parallelism=2]",), ["write each as --name=value"]),
        ("flink", ("beam.extra_args=[--a b]",), ["write each as --name=value"]),
        ("flink", ("beam.extra_args=[--runner=DaskRunner]",), ["contradicts", "engine: flink"]),
        ("flink", ("beam.extra_args=[--parallelism=7]",), ["contradicts"]),
        ("dataflow", (), ["needs project, region, temp_location", "gs://my-bucket/tmp"]),
        ("dataflow", DATAFLOW[:2], ["needs temp_location;"]),
        ("dataflow", DATAFLOW[:3], ["without TFX and this project", "sdk_container_image"]),
    ],
)
def test_refusals(engine, overrides, messages):
    text = refusal(engine, *overrides)
    for message in messages:
        assert message in text


def test_a_wrong_field_is_named_with_its_line(write):
    file = write(lambda config: config.update(beam={"engine": "flink", "workers": 2}))
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "workers" in text)
    text = str(caught.value)
    assert f"{file}:{line}: beam.workers: unknown key." in text
    assert "parallelism" in text.partition("Accepted here:")[2]


def test_an_engine_is_known_to_its_file_and_the_table_alone():
    """To add one touches these two; `config` takes `in_memory` where the YAML has no `beam:`."""
    graph = grimp.build_graph("pipeline", cache_dir=None)
    for name in ENGINES:
        knowing = graph.find_modules_that_directly_import(f"pipeline.engines.{name}")
        assert knowing - {"pipeline.config.config"} == {"pipeline.engines.table"}, name
    assert "pipeline.config.config" in graph.find_modules_that_directly_import(
        "pipeline.engines.in_memory"
    )


def test_every_engine_is_named_by_its_model():
    for name, model in ENGINES.items():
        assert model.model_fields["engine"].default == name


def test_engines_are_frozen_and_hold_their_defaults():
    engine = Flink()
    assert (engine.job_endpoint, engine.rest) == ("localhost:8099", "localhost:8081")
    with pytest.raises(ValueError, match="frozen"):
        engine.parallelism = 3  # pyright: ignore[reportAttributeAccessIssue]
