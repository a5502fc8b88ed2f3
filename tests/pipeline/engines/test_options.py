"""Beam's own parser and validator judge the options; nobody is contacted."""

from __future__ import annotations

import socket

import pytest

from pipeline.cli import cli
from pipeline.config.config import ConfigError
from pipeline.config.config_file import load_engine
from pipeline.config.presets import Dataflow, Flink, InMemory, Portable, Spark
from pipeline.engines.options import check_options, runner_options

IMAGE = "registry/image"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam's validator creates a bucket in Google Cloud where temp_location is wrong."""

    def refuse(*arguments, **keywords):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def dataflow(**changes) -> Dataflow:
    fields = {"project": "my-project", "region": "europe-west1", "temp_location": "gs://bucket/tmp"}
    return Dataflow.model_validate({**fields, "sdk_container_image": IMAGE, **changes})


@pytest.mark.parametrize("engine", [InMemory(), Portable(), Flink(), Spark(), dataflow()])
def test_presets_pass(engine):
    known = check_options(engine)
    for option in engine.options():
        assert option.name in known, option


def test_options_are_understood_not_only_accepted():
    known = check_options(Flink(parallelism=7, extra_args=("--max_bundle_size=50",)))
    assert known["parallelism"] == 7
    assert known["max_bundle_size"] == 50
    assert known["environment_type"] == "LOOPBACK"


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            Flink(extra_args=("--object_reus=true",)),
            "neither Beam nor its flink job server has an option --object_reus. "
            "Did you mean --object_reuse?",
        ),
        (InMemory(extra_args=("--object_reuse",)), "Beam has no option --object_reuse."),
        (Spark(extra_args=("--object_reuse",)), "its spark job server has an option"),
        (Flink(extra_args=("--max_parallelism=many",)), "invalid int value: 'many'"),
        (Spark(extra_args=("--bundle_size=many",)), "invalid int value: 'many'"),
        (dataflow(temp_location="/tmp/here"), "Invalid GCS path (/tmp/here)"),
        (dataflow(project="12345"), "Invalid Project ID (12345)"),
        (dataflow(extra_args=("--num_workers=0",)), "Value needs to be positive"),
    ],
)
def test_refusals(engine, message):
    with pytest.raises(ConfigError) as caught:
        check_options(engine)
    assert message in str(caught.value)


def test_runner_options_come_from_the_job_servers():
    assert "max_bundle_size" in runner_options(Flink())
    assert "bundle_size" in runner_options(Spark())
    assert runner_options(Portable()) == {}


def test_the_command_prints_each_option_with_its_reason(capsys):
    assert cli.main(["beam-options", "--engine", "spark", "--set", "beam.job_endpoint=s:1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("--job_endpoint=s:1 ") for line in lines)
    assert all(len(line.split(None, 1)) == 2 for line in lines)


def test_the_command_takes_the_yamls_section(write, capsys):
    file = write(lambda config: config.update(beam={"engine": "flink", "parallelism": 5}))
    assert cli.main(["beam-options", "--config", str(file)]) == 0
    assert "--parallelism=5" in capsys.readouterr().out
    assert cli.main(["beam-options", "--config", str(file), "--engine", "spark"]) == 0
    assert "--parallelism" not in capsys.readouterr().out


def test_the_command_says_what_dataflow_needs(capsys):
    assert cli.main(["beam-options", "--engine", "dataflow"]) == 2
    assert "needs project, region, temp_location" in capsys.readouterr().err


def test_the_option_file_is_what_the_presets_need():
    assert set(runner_options(Flink())) >= {"parallelism"}
    assert load_engine("flink").pipeline_args() == Flink().pipeline_args()
