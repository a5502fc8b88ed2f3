"""The YAML: accepted values, rejected values, and the facts that error messages name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig, json_schema
from pipeline.config.config_file import load_config

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "taxi" / "pipeline.yaml"


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


def test_another_encoding_is_an_error(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_bytes("name: größe\n".encode("latin-1"))
    with pytest.raises(
        ConfigError, match=r"pipeline\.yaml: the configuration is not UTF-8 \(byte 8"
    ):
        load_config(path)


@pytest.mark.parametrize(
    ("content", "option", "message"),
    [
        (None, "{file: towns.txt}", r"vocabulary\.file=towns\.txt: cannot read .*towns\.txt"),
        (b"", "{file: towns.txt}", "has 0 values; give 1 to"),
        (b"a\nb\na\n", "{file: towns.txt}", "has 'a' twice, as values 1 and 3"),
        (b"a\n", "{file: towns.txt, values: [a]}", "has both file and values"),
        (b"a\n", "{file: 'gs://b/towns.txt'}", "name a text file on this machine"),
    ],
)
def test_a_vocabulary_file_that_is_none(write, tmp_path, content, option, message):
    if content is not None:
        (tmp_path / "towns.txt").write_bytes(content)
    text = refusal(write(), "features.groups.1.encode={vocabulary: " + option + "}")
    assert re.search(message, text), text


@pytest.mark.parametrize(
    ("override", "facts"),
    [
        ("training.epochs", ["--set training.epochs", "section.field=value"]),
        ("features.groups.7.impute=mean", ["features.groups", "list of 2", "'7'", "0 to 1"]),
        ("name.first=x", ["--set name.first=x", "name is 'small'"]),
        ("training.epochs=[", ["--set training.epochs=[", "not valid YAML"]),
        ("training.epochs=abc", ["--set training.epochs='abc'", "whole number"]),
        ("features.groups.0.scal=none", ["features.groups.0.scal", "unknown key", "'scale'?"]),
        ("training.epoch=3", ["--set training.epoch", "unknown key", "'epochs'?"]),
        ("features.groups.0.impute=foo", ["--set features.groups.0.impute='foo'"]),
        ("training.micro_batch_size=999", ["--set training.micro_batch_size=999", "exceeds"]),
        ("training.global_batch_size=0", ["--set training.global_batch_size=0"]),
        (
            "training.global_batch_size={0: 16, 9: 0}",
            ["--set training.global_batch_size", "0 at step 9", "at least 1 row"],
        ),
        ("training.scale_learning_rate=sqrt", ["'sqrt' has no effect", "{0: 256, 1000: 1024}"]),
        ("data.source=xml", ["--set data.source='xml'", "csv, tfrecord, "]),
        ("name=Taxi_1", ["--set name='Taxi_1'", "'taxi-1'"]),
        ("beam.workers=2", ["workers=2 needs engine: multi_processing"]),
        ("evaluation.thresholds.acu.lower_bound=0.9", ["metric 'acu'", "did you mean 'auc'?"]),
        ("evaluation.metrics=[mean_squared_error]", ["'mean_squared_error'", "binary", "use auc"]),
        ("evaluation.thresholds.auc={}", ["lower_bound, upper_bound, max_loss"]),
        (
            "evaluation.thresholds.auc={lower_bound: 0.9, upper_bound: 0.5}",
            ["lower_bound=0.9", "upper_bound=0.5"],
        ),
    ],
)
def test_a_wrong_override_is_named(write, override, facts):
    file = write()
    text = refusal(file, override)
    assert all(fact in text for fact in facts), text
    if facts[0].startswith("--set"):
        assert str(file) not in text


def test_a_wrong_value_beside_set_names_the_line(write):
    file = write(lambda c: c["training"].update(epochs="abc"))
    text = refusal(file, "training.global_batch_size=16")
    assert re.search(rf"^{re.escape(str(file))}:\d+: training.epochs='abc'", text)


def test_missing_sections_are_named(write):
    assert "output: required" in refusal(write(lambda c: c.pop("output")))
    text = refusal(write(lambda c: c["features"].pop("label")))
    assert "features.label: required" in text
    assert "label: {column: <name>" in text


@pytest.mark.parametrize(
    ("line", "again", "message"),
    [
        ("name: small", "name: other", r":2: name is also on line 1"),
        ("  epochs: 1", "  epochs: 5", r":\d+: training\.epochs is also on line \d+"),
        ("    scale: z_score", "    scale: none", r"features\.groups\.0\.scale is also on"),
    ],
)
def test_a_duplicate_key_is_an_error(write, line, again, message):
    """YAML's own reader takes the last, in silence."""
    path = write()
    path.write_text(path.read_text().replace(f"{line}\n", f"{line}\n{again}\n", 1))
    with pytest.raises(ConfigError, match=message):
        load_config(path)


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


SEARCHES = """
optimizer.lerning_rate: {values: [0.1]} -> .search: optimizer.lerning_rate is not a setting: did you
    mean 'optimizer.lear
clip_norm: {mni: 0.1, max: 1} -> .search.clip_norm.mni: unknown key. Did you mean 'min'? Accepted
optimizer.learning_rate: {values: [0.1, true]} -> .search: optimizer.learning_rate=True:
optimizer.learning_rate: {values: [fast]} -> use values such as 0.001
clip_norm: {min: true, max: 2} -> .search.clip_norm.min=True: Use a number, such as
micro_batch_size: {min: 4, max: 64}
    -> .search: training.micro_batch_size=64 exceeds global_batch_size=16
"""


def test_a_search_that_does_not_fit_the_training(write):
    for line in SEARCHES.strip().replace("\n    ", " ").splitlines():
        search, _, message = line.partition(" -> ")
        text = refusal(write(lambda c, s=search: c.update(tuning={"search": yaml.safe_load(s)})))
        assert message in text, line
        assert "tuning.search" in text


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


def test_all_errors_are_reported_together(write):
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


LINES = """\
name: small
data: {path: rows.csv}
features:
  groups:
    - name: numbers
      columns: [amount]
      scale: z_score
  label: {column: bought, kind: binary}
training:
  epochs: 1
output:
  folder: "out"
"""


GROUPS = LINES[LINES.index("groups:") : LINES.index("  label")]


@pytest.mark.parametrize(
    ("old", "new", "line", "facts"),
    [
        ("name: numbers", 'name: "numbers', 5, ['`- name: "numbers`', "line 12"]),
        ('"out"', "'out", 12, ["`folder: 'out`", "never closed"]),
        ("  epochs: 1", "\tepochs: 1", 10, ["tab", "`epochs: 1`"]),
        ("epochs: 1", "epochs: 1: 2", 10, ["`: `", "`epochs: 1: 2`", "quotes"]),
        ("      scale", "       scale", 7, ["`scale: z_score`", "indented", "line 5"]),
        ('"out"', '"C:\\Users"', 12, ["backslash", "`folder: ", "single quotes"]),
        ('"out"', "@out", 12, ["`folder: @out`", "'@'", "quotes"]),
        ("name: small", "name: my_houses", 1, ["name='my_houses'", "'my-houses'", "hyphens", "63"]),
        ("name: small", "name: 2020", 1, ["name=2020", "quotes"]),
        (GROUPS, "groups:\n", 4, ["features.groups: empty", "list"]),
        ("\n  epochs: 1", "", 9, ["training: empty", "model_fn, ", "{epochs: "]),
        ("epochs: 1", "epochs: 1\n  steps: 3", 10, ["training.epochs=1", "steps=3"]),
    ],
)
def test_the_line_the_cause_and_the_fix_are_named(tmp_path, old, new, line, facts):
    assert old in LINES
    file = tmp_path / "my.yaml"
    file.write_text(LINES.replace(old, new))
    text = refusal(file)
    assert text.startswith(f"{file}:{line}: ")
    assert all(fact in text for fact in facts), text


@pytest.mark.parametrize(
    ("evaluation", "judged", "against_constant", "metric"),
    [
        ({}, False, False, "auc"),
        ({"thresholds": {"recall": {"lower_bound": 0.5}}}, True, True, "auc"),
        ({"thresholds": {"binary_accuracy": {"max_loss": 0.1}}}, True, True, "binary_accuracy"),
        (
            {"thresholds": {"auc": {"lower_bound": 0.5}}, "require_better_than_constant": False},
            *(True, False, "auc"),
        ),
    ],
)
def test_thresholds_also_ask_for_more_than_a_constant(
    write, evaluation, judged, against_constant, metric
):
    found = load_config(write(lambda c: c.update(evaluation=evaluation))).evaluation
    assert (found.is_judged, found.against_constant) == (judged, against_constant)
    assert found.judged_by("binary") == metric
    specs = found.eval_config(label="bought", kind="binary", weight=None).metrics_specs
    names = [metric.class_name for spec in specs for metric in spec.metrics]
    assert ("BetterThanConstant" in names) == against_constant


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("beam={engine: flink, options: [--job_endpoint=h:1], parallelism: 2}", "beam.options"),
        ("normalization.shift={max_moved: 0.1}", "DistributionValidator"),
    ],
)
def test_a_removed_setting_names_what_replaces_it(write, setting, instead):
    with pytest.raises(ConfigError, match=r"removed in 0\.3\.0\. Instead, ") as error:
        load_config(write(), [setting])
    assert instead in str(error.value)


def setting_paths(schema, definitions, above=(), seen=()):
    """Yield the path of each setting; those of a section that several have stand at the first."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in seen:
            return
        seen.append(name)
        schema = definitions[name]
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from setting_paths(branch, definitions, above, seen)
    for name, field in schema.get("properties", {}).items():
        yield ".".join((*above, name))
        yield from setting_paths(field, definitions, (*above, name), seen)
    for key in ("additionalProperties", "items"):
        if isinstance(schema.get(key), dict):
            yield from setting_paths(schema[key], definitions, (*above, "*"), seen)


def test_a_new_setting_is_seen_in_review():
    """`settings.txt` is the list; each line is read in a review before it is added."""
    schema = json.loads(json_schema())
    paths = list(dict.fromkeys(setting_paths(schema, schema["$defs"], seen=[])))
    assert paths == Path(__file__).with_name("settings.txt").read_text().splitlines()
