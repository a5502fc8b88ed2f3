"""Beam's own parser and validator check the options, without network."""

from __future__ import annotations

import pytest

from pipeline.cli import cli
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_engine
from pipeline.engines.engine import Engine
from pipeline.engines.flink import Flink
from pipeline.engines.in_memory import InMemory
from pipeline.engines.options import check_options
from pipeline.engines.portable import Portable
from pipeline.engines.spark import Spark

from .conftest import SETTINGS

pytestmark = pytest.mark.usefixtures("no_network")

# Some of the options that Beam's job servers list in DescribePipelineOptions.
OF_FLINK = {
    **dict.fromkeys(("parallelism", "max_parallelism", "max_bundle_size"), "INTEGER"),
    "object_reuse": "BOOLEAN",
    "execution_mode_for_batch": "STRING",
}
OF_SPARK = {"bundle_size": "INTEGER"}


def dataflow(**changes) -> Engine:
    changed = [f"beam.{name}={value}" for name, value in changes.items()]
    return load_engine("dataflow", [*SETTINGS["dataflow"], *changed])


def test_options_are_parsed_to_their_types():
    known = check_options(Flink(parallelism=7, extra_args=("--max_bundle_size=50",)), OF_FLINK)
    assert known["parallelism"] == 7
    assert known["max_bundle_size"] == 50
    assert known["environment_type"] == "LOOPBACK"
    assert known["execution_mode_for_batch"] == "BATCH_FORCED"


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
        (dataflow(project="'12345'"), None, "Invalid Project ID (12345)"),
        (dataflow(extra_args="[--num_workers=0]"), None, "Value needs to be positive"),
    ],
)
def test_wrong_options_are_rejected(engine, known, message):
    with pytest.raises(ConfigError) as error:
        check_options(engine, known)
    assert message in str(error.value)


def test_options_of_a_job_server_pass_until_it_is_queried():
    assert check_options(Spark(extra_args=("--bundle_size=5",)))["bundle_size"] == "5"


def test_the_command_prints_each_option_with_its_reason(capsys):
    assert cli.main(["beam-options", "--engine", "spark", "--set", "beam.job_endpoint=s:1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("--job_endpoint=s:1 ") for line in lines)
    assert all(len(line.split(None, 1)) == 2 for line in lines)


def test_the_command_reads_the_yaml(write, capsys):
    file = write(lambda config: config.update(beam={"engine": "flink", "parallelism": 5}))
    assert cli.main(["beam-options", "--config", str(file)]) == 0
    assert "--parallelism=5" in capsys.readouterr().out
    assert cli.main(["beam-options", "--config", str(file), "--engine", "spark"]) == 0
    assert "--parallelism" not in capsys.readouterr().out
