"""Beam's own parser and validator judge the options; nobody is contacted."""

from __future__ import annotations

import socket

import pytest

from pipeline.cli import cli
from pipeline.common.errors import ConfigError
from pipeline.engines.dataflow import Dataflow
from pipeline.engines.flink import Flink
from pipeline.engines.in_memory import InMemory
from pipeline.engines.options import check_options
from pipeline.engines.portable import Portable
from pipeline.engines.spark import Spark

IMAGE = "registry/image"
# Of what Beam's job servers answer to DescribePipelineOptions.
OF_FLINK = {
    **dict.fromkeys(("parallelism", "max_parallelism", "max_bundle_size"), "INTEGER"),
    "object_reuse": "BOOLEAN",
}
OF_SPARK = {"bundle_size": "INTEGER"}


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
def test_engines_pass(engine):
    known = check_options(engine)
    for option in engine.options():
        assert option.name in known, option


def test_options_are_understood_not_only_accepted():
    known = check_options(Flink(parallelism=7, extra_args=("--max_bundle_size=50",)), OF_FLINK)
    assert known["parallelism"] == 7
    assert known["max_bundle_size"] == 50
    assert known["environment_type"] == "LOOPBACK"


@pytest.mark.parametrize(
    ("engine", "known", "message"),
    [
        (
            Flink(extra_args=("--object_reus=true",)),
            OF_FLINK,
            "neither Beam nor its flink job server has an option --object_reus. "
            "Did you mean --object_reuse?",
        ),
        (InMemory(extra_args=("--object_reuse",)), None, "Beam has no option --object_reuse."),
        (Portable(extra_args=("--object_reuse",)), None, "Beam has no option --object_reuse."),
        (Spark(extra_args=("--object_reuse",)), OF_SPARK, "its spark job server has an option"),
        (Flink(extra_args=("--max_parallelism=many",)), OF_FLINK, "invalid int value: 'many'"),
        (Spark(extra_args=("--bundle_size=many",)), OF_SPARK, "invalid int value: 'many'"),
        (dataflow(temp_location="/tmp/here"), None, "Invalid GCS path (/tmp/here)"),
        (dataflow(project="12345"), None, "Invalid Project ID (12345)"),
        (dataflow(extra_args=("--num_workers=0",)), None, "Value needs to be positive"),
    ],
)
def test_refusals(engine, known, message):
    with pytest.raises(ConfigError) as caught:
        check_options(engine, known)
    assert message in str(caught.value)


def test_what_only_a_job_server_can_know_passes_until_it_is_asked():
    assert check_options(Spark(extra_args=("--bundle_size=5",)))["bundle_size"] == "5"


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
