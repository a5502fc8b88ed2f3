"""`beam:` of the YAML: Beam's options of each engine, and errors of wrong values. No network."""

from __future__ import annotations

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.engines import engine as engine_module
from pipeline.engines.engine import _ENGINES, BeamConfig, check_beam

SERVER = "--job_endpoint=localhost:8099"
DATAFLOW = (
    "--project=my-project",
    "--region=europe-west1",
    "--temp_location=gs://my-bucket/tmp",
    "--sdk_container_image=registry/image",
)
NEEDED = {"flink": (SERVER,), "spark": (SERVER,), "dataflow": DATAFLOW}
"""Options without a default, by engine."""


def test_the_default_is_one_process_of_this_machine(write):
    beam = load_config(write()).beam
    assert (beam.engine, beam.option("runner")) == ("in_memory", "FnApiRunner")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", _ENGINES)
def test_beam_takes_the_options_of_each_engine(name, monkeypatch):
    monkeypatch.setattr(engine_module, "_check_listens", lambda endpoint: None)
    needed = NEEDED.get(name, ())
    beam = BeamConfig(engine=name, options=(*needed, "--job_name=mine"))
    check_beam(beam, {})
    assert beam.pipeline_args()[-1] == "--job_name=mine"
    for argument in ("--runner=DaskRunner", "--direct_num_workers=3"):
        with pytest.raises(ValueError, match="instead"):
            BeamConfig(engine=name, options=(*needed, argument))
    for argument in ("parallelism=2", "--a b"):
        with pytest.raises(ValueError, match="write each as --name=value"):
            BeamConfig(engine=name, options=(*needed, argument))


@pytest.mark.parametrize(
    ("beam", "expected"),
    [
        (BeamConfig(engine="multi_processing", workers=4), {"direct_num_workers": "4"}),
        (BeamConfig(engine="portable"), {"job_endpoint": "embed", "environment_type": "LOOPBACK"}),
        (
            BeamConfig(engine="flink", options=(SERVER, "--parallelism=7")),
            {
                "runner": "FlinkRunner",
                "job_endpoint": "localhost:8099",
                "environment_type": "LOOPBACK",
                "execution_mode_for_batch": "BATCH_FORCED",
                "parallelism": "7",
                "sdk_container_image": "unused",  # else each node packs TFX
            },
        ),
        (
            BeamConfig(engine="spark", options=(SERVER, "--environment_type=DOCKER")),
            {"runner": "SparkRunner", "environment_type": "DOCKER"},
        ),
        (
            BeamConfig(engine="portable", options=("--setup_file=setup.py",)),
            {"sdk_container_image": None},
        ),
    ],
)
def test_options_of_the_user_replace_the_defaults(beam, expected):
    assert {name: beam.option(name) for name in expected} == expected
    names = [argument.partition("=")[0] for argument in beam.pipeline_args()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("beam", "messages"),
    [
        ({"engine": "DaskRunner"}, ["'DaskRunner' is not offered", "silently wrong results"]),
        ({"engine": "direct"}, ["is not offered", "download another runner (Prism)", "in_memory"]),
        ({"engine": "flnk"}, ["'flnk' is unknown. Did you mean 'flink'?", "multi_processing"]),
        ({"engine": "multi_processing", "workers": 0}, ["beam.workers=0"]),
        ({"engine": "flink"}, ["needs among its options --job_endpoint=localhost:8099"]),
        ({"engine": "dataflow"}, ["--project=my-project", "--temp_location=gs://my-bucket/tmp"]),
    ],
)
def test_wrong_values_are_errors_of_the_yaml(write, beam, messages):
    with pytest.raises(ConfigError) as error:
        load_config(write(lambda config: config.update(beam=beam)))
    for message in messages:
        assert message in str(error.value)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("beam", "message"),
    [
        ({"options": ["--job_nam=x"]}, "Did you mean --job_name?"),
        ({"options": ["--job_server_timeout=many"]}, "invalid int value: 'many'"),
        (
            {"engine": "dataflow", "options": [*DATAFLOW[:2], "--temp_location=/tmp", DATAFLOW[3]]},
            "Invalid GCS path (/tmp)",
        ),
        ({"engine": "flink", "options": ["--job_endpoint=here"]}, "--job_endpoint=here is not"),
    ],
)
def test_what_beam_would_drop_or_refuse_is_an_error_before_the_run(beam, message):
    with pytest.raises(ConfigError) as error:
        check_beam(BeamConfig.model_validate(beam), {})
    assert message in str(error.value)


@pytest.mark.usefixtures("no_network")
def test_workers_in_google_cloud_do_not_see_local_folders():
    beam = BeamConfig(engine="dataflow", options=DATAFLOW)
    with pytest.raises(ConfigError, match=r"do not see output\.folder=out"):
        check_beam(beam, {"output.folder": "out"})


def test_a_job_server_that_is_not_there_is_an_error():
    beam = BeamConfig(engine="spark", options=("--job_endpoint=localhost:1",))
    with pytest.raises(ConfigError, match=r"--job_endpoint=localhost:1: no job server there"):
        check_beam(beam, {})
