"""`beam:` in the YAML: the options of each engine, and the errors of wrong values."""

from __future__ import annotations

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config, load_engine
from pipeline.engines.in_memory import InMemory

from .conftest import SETTINGS

DATAFLOW = SETTINGS["dataflow"]


def test_the_default_is_one_process_of_this_machine(write):
    engine = load_config(write()).beam
    assert isinstance(engine, InMemory)
    assert "--runner=FnApiRunner" in engine.pipeline_args()


@pytest.mark.parametrize(
    ("engine", "overrides", "options"),
    [
        (
            "flink",
            (),
            [
                *("--runner=PortableRunner", "--job_endpoint=localhost:8099"),
                *("--environment_type=LOOPBACK", "--parallelism=2"),
            ],
        ),
        (
            "flink",
            ("environment=external",),
            ["--environment_type=EXTERNAL", "--environment_config=localhost:50000"],
        ),
        (
            "spark",
            ("environment=docker", "worker_image=registry/image:1"),
            ["--environment_type=DOCKER", "--environment_config=registry/image:1"],
        ),
        ("multi_processing", ("workers=3",), ["--direct_num_workers=3"]),
    ],
)
def test_fields_become_options(engine, overrides, options):
    args = load_engine(engine, [f"beam.{each}" for each in overrides]).pipeline_args()
    assert set(options) <= set(args)


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


@pytest.mark.parametrize(
    ("engine", "overrides", "messages"),
    [
        ("DaskRunner", (), ["'DaskRunner' is not offered", "silently wrong results"]),
        ("direct", (), ["is not offered", "download another runner (Prism)", "in_memory"]),
        ("prism", (), ["is not offered"]),
        ("flnk", (), ["'flnk' is unknown. Did you mean 'flink'?", "multi_processing"]),
        ("in_memory", ("beam.workers=2",), ["workers=2 needs engine: multi_processing"]),
        ("flink", ("beam.paralelism=2",), ["Did you mean 'parallelism'?"]),
        ("flink", ("beam.parallelism=0",), ["beam.parallelism=0"]),
        ("flink", ("beam.job_endpoint=localhost",), ["expected host:port"]),
        ("flink", ("beam.rest=http://localhost:8081",), ["expected host:port"]),
        ("flink", ("beam.worker_pool=localhost:99999",), ["expected host:port"]),
        ("flink", ("beam.environment=docker",), ["docker needs worker_image"]),
        ("flink", ("beam.worker_image=a/b",), ["worker_image=a/b needs environment: docker"]),
        ("flink", ("beam.extra_args=[--parallelism=7]",), ["contradicts"]),
        ("dataflow", (), ["needs project, region, temp_location", "gs://my-bucket/tmp"]),
        ("dataflow", DATAFLOW[:2], ["needs temp_location;"]),
        ("dataflow", DATAFLOW[:3], ["without TFX and this project", "sdk_container_image"]),
    ],
)
def test_wrong_values_are_rejected(engine, overrides, messages):
    with pytest.raises(ConfigError) as error:
        load_engine(engine, overrides)
    for message in messages:
        assert message in str(error.value)


def test_a_list_is_not_the_name_of_an_engine(write):
    file = write(lambda config: config.update(beam={"engine": ["flink"]}))
    with pytest.raises(ConfigError, match=r"is unknown\. Did you mean 'flink'"):
        load_config(file)


def test_the_error_of_a_wrong_field_names_its_line(write):
    file = write(lambda config: config.update(beam={"engine": "flink", "workers": 2}))
    with pytest.raises(ConfigError) as error:
        load_config(file)
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "workers" in text)
    assert f"{file}:{line}: beam.workers: unknown key." in str(error.value)
    assert "parallelism" in str(error.value).partition("Accepted here:")[2]
