"""The YAML: what it accepts, what it refuses, and in which words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest

from pipeline.config.config import ConfigError, PipelineConfig, json_schema
from pipeline.config.config_file import load_config

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "taxi" / "pipeline.yaml"


def refusal(file: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    return str(caught.value)


def test_the_example_parses_and_its_paths_start_at_its_own_folder():
    config = load_config(EXAMPLE)
    assert config.output.folder == str(EXAMPLE.parents[2] / "output" / "taxi")
    assert config.push_folder == config.output.folder + "/serving_model"
    assert config.data.path.startswith("package://tfx/")


def test_relative_data_path_is_resolved_against_the_yaml(write, tmp_path, monkeypatch):
    file = write()
    monkeypatch.chdir("/")
    assert load_config(file).data.path == str(tmp_path / "rows.csv")


def test_remote_paths_stay_as_they_are(write):
    config = load_config(write(), ["data.path=gs://bucket/rows.csv", "output.folder=gs://bucket/x"])
    assert config.data.path == "gs://bucket/rows.csv"
    assert config.pipeline_root == "gs://bucket/x/artifacts"


def test_set_overrides_fields_at_any_depth(write):
    config = load_config(
        write(),
        [
            "training.global_batch_size=8",
            "features.groups.0.impute=mean",
            "evaluation.thresholds.auc.lower_bound=0.5",
        ],
    )
    assert config.training.global_batch_size == 8
    assert config.features.groups[0].impute == "mean"
    assert config.evaluation.thresholds["auc"].lower_bound == 0.5


def test_a_vocabulary_in_a_file_becomes_its_values(write, tmp_path):
    (tmp_path / "towns.txt").write_text("Oslo\nSão Paulo\n\n7\n", encoding="utf-8")
    config = load_config(write(), ["features.groups.1.encode={vocabulary: {file: towns.txt}}"])
    encode = config.features.groups[1].encode
    assert encode is not None
    assert encode.vocabulary is not None
    assert encode.vocabulary.values == ("Oslo", "São Paulo", "7")


def test_a_yaml_of_another_encoding_is_told(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_bytes("name: größe\n".encode("latin-1"))
    with pytest.raises(
        ConfigError, match=r"pipeline\.yaml: the configuration is not UTF-8 \(byte 8"
    ):
        load_config(path)


@pytest.mark.parametrize(
    ("content", "option", "message"),
    [
        (
            None,
            "{file: towns.txt}",
            r"vocabulary\.file=towns\.txt: cannot read .*towns\.txt",
        ),
        (b"", "{file: towns.txt}", "has 0 values; give 1 to"),
        (b"a\nb\na\n", "{file: towns.txt}", "has 'a' as its value 1 and 3; remove one"),
        (b"\xff", "{file: towns.txt}", "is not UTF-8"),
        (b"a\n", "{file: towns.txt, values: [a]}", "has both file and values"),
        (b"a\n", "{file: towns.txt, top_k: 3}", "vocabulary has values and top_k=3"),
        (b"a\n", "{file: 'gs://b/towns.txt'}", "name a text file on this machine"),
    ],
)
def test_a_vocabulary_file_that_is_none(write, tmp_path, content, option, message):
    if content is not None:
        (tmp_path / "towns.txt").write_bytes(content)
    text = refusal(write(), "features.groups.1.encode={vocabulary: " + option + "}")
    assert re.search(message, text), text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epochs", "expected section.field=value"),
        ("training..epochs=1", "expected section.field=value"),
        ("features.groups.7.impute=mean", "features.groups is a list of 2; '7' is no index"),
        ("name.first=x", "name holds 'small', which has no fields"),
        ("training.epochs=[", "the value is not valid YAML"),
    ],
)
def test_a_wrong_override_is_named(write, override, message):
    text = refusal(write(), override)
    assert f"--set {override}" in text
    assert message in text


def test_configuration_is_frozen(write):
    config = load_config(write())
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        config.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_unknown_key_names_line_key_and_nearest(write):
    file = write(lambda c: c["training"].update(global_batchsize=64))
    lines = file.read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "global_batchsize" in text)
    text = refusal(file)
    assert f"{file}:{line}: training.global_batchsize: unknown key." in text
    assert "Did you mean 'global_batch_size'?" in text


def test_unknown_key_inside_a_list(write):
    text = refusal(write(lambda c: c["features"]["groups"][0].update(scal="z_score")))
    assert "features.groups.0.scal: unknown key. Did you mean 'scale'?" in text


def test_missing_section(write):
    text = refusal(write(lambda c: c.pop("output")))
    assert "output: required, but not there" in text


def test_missing_label_says_what_to_add(write):
    text = refusal(write(lambda c: c["features"].pop("label")))
    assert "features.label: required" in text
    assert "add label: {column: <name>" in text


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("data.source", "xml", "data.source='xml': Input should be 'csv', 'tfrecord' or 'parquet'"),
        ("data.eval_percent", "0", "data.eval_percent=0: "),
        ("data.eval_percent", "many", "data.eval_percent='many': "),
        ("training.epochs", "three", "training.epochs"),
        ("name", "Taxi_1", "name='Taxi_1': "),
        ("beam.workers", "2", "workers=2 needs engine: multi_processing"),
        ("normalization.z_score.max_abs_mean", "-1", "normalization.z_score.max_abs_mean=-1"),
    ],
)
def test_wrong_type_or_value_names_field_and_value(write, field, value, message):
    assert message in refusal(write(), f"{field}={value}")


@pytest.mark.parametrize("value", [0, -8])
@pytest.mark.parametrize("field", ["global_batch_size", "micro_batch_size"])
def test_batch_sizes_are_positive(write, field, value):
    text = refusal(write(), f"training.{field}={value}")
    assert f"training.{field}" in text
    assert str(value) in text


def test_micro_batch_fits_into_the_global_batch(write):
    text = refusal(write(), "training.micro_batch_size=32")
    assert "micro_batch_size=32" in text
    assert "global_batch_size=16" in text


def test_unknown_metric_in_a_threshold(write):
    text = refusal(write(), "evaluation.thresholds.acu.lower_bound=0.9")
    assert "unknown metric 'acu': did you mean 'auc'?" in text


def test_metric_that_does_not_fit_the_label(write):
    text = refusal(write(), "evaluation.metrics=[mean_squared_error]")
    assert "metric 'mean_squared_error' does not fit a binary label" in text
    assert "auc" in text


def test_a_threshold_without_a_bound(write):
    assert "needs at least one of lower_bound" in refusal(write(), "evaluation.thresholds.auc={}")


def test_file_that_does_not_exist(tmp_path):
    text = refusal(tmp_path / "none.yaml")
    assert str(tmp_path / "none.yaml") in text
    assert "--config" in text


@pytest.mark.parametrize(
    ("content", "message"), [("a: [", "not valid YAML"), ("- a\n", "found list"), ("", "NoneType")]
)
def test_file_that_is_no_mapping(tmp_path, content, message):
    file = tmp_path / "p.yaml"
    file.write_text(content)
    assert message in refusal(file)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (
            {"optimizer.lerning_rate": {"values": [0.1]}},
            "tuning.search: optimizer.lerning_rate is not a setting: did you mean 'optimizer.lear",
        ),
        (
            {"clip_norm": {"mni": 0.1, "max": 1}},
            "tuning.search.clip_norm.mni: unknown key. Did you mean 'min'? Accepted here: values, ",
        ),
        (
            {"micro_batch_size": {"min": 4, "max": 64}},
            "tuning.search: training.micro_batch_size=64 exceeds global_batch_size=16",
        ),
    ],
)
def test_a_search_that_does_not_fit_the_training(write, search, message):
    file = write(lambda c: c.update(tuning={"search": search}))
    assert message in refusal(file)


def test_an_objective_that_the_labels_kind_does_not_have(write):
    tuning = {"search": {"clip_norm": {"values": [1]}}, "objective": "mean_absolute_error"}
    text = refusal(write(lambda c: c.update(tuning=tuning)))
    assert "tuning.objective='mean_absolute_error' is not evaluated; use one of acc" in text


def test_trainings_are_those_that_may_be_tried(write):
    config = load_config(write())
    assert config.trainings == (config.training,)
    search = {"global_batch_size": {"values": [8, 16]}, "loss": {"values": ["mse", "my.loss"]}}
    tuning = {"search": search, "objective": "auc", "epochs": 3}
    config = load_config(
        write(lambda c: c.update(tuning=tuning, training={"metrics": ["auc", "my.metric"]}))
    )
    found = [(t.global_batch_size, t.loss, t.epochs) for t in config.trainings]
    assert found == [(8, "mse", 3), (8, "my.loss", 3), (16, "mse", 3), (16, "my.loss", 3)]
    assert config.training_functions == {
        "my.loss": "tuning.search.loss",
        "my.metric": "training.metrics",
    }


def test_every_error_is_told_at_once(write):
    text = refusal(write(), "data.source=xml", "training.global_batch_size=0")
    assert len(text.splitlines()) == 2


def test_json_schema_describes_every_section():
    schema = json.loads(json_schema())
    assert set(schema["properties"]) == {
        field.alias or name for name, field in PipelineConfig.model_fields.items()
    }
    assert schema["additionalProperties"] is False
    assert "percent" in schema["$defs"]["DataConfig"]["properties"]["eval_percent"]["description"]


def test_parsing_a_configuration_imports_no_tensorflow():
    code = (
        "import sys; from pipeline import load_config; load_config(sys.argv[1]);"
        "print(sorted({'tensorflow', 'tfx', 'keras', 'apache_beam'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLE)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
