"""The YAML: what it accepts, what it refuses, and in which words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest

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
        ("features.groups.7.impute=mean", "features.groups is a list of 2; '7' is not an index"),
        ("name.first=x", "name holds 'small', which has no fields"),
        ("training.epochs=[", "the value is not valid YAML"),
    ],
)
def test_a_wrong_override_is_named(write, override, message):
    text = refusal(write(), override)
    assert f"--set {override}" in text
    assert message in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.epochs=abc", "--set training.epochs='abc': Input should be a valid integer"),
        ("training.epoch=3", "--set training.epoch: unknown key. Did you mean 'epochs'?"),
        ("training=5", "--set training=5: "),
        ("trainin.epochs=3", "--set trainin: unknown key. Did you mean 'training'?"),
        ("features.groups.0.impute=foo", "--set features.groups.0.impute='foo': "),
        ("training.micro_batch_size=999", "--set training.micro_batch_size=999 exceeds"),
    ],
)
def test_a_wrong_value_of_set_names_the_option(write, override, message):
    file = write()
    text = refusal(file, override)
    assert message in text
    assert str(file) not in text


def test_a_wrong_value_beside_set_names_the_line(write):
    file = write(lambda c: c["training"].update(epochs="abc"))
    text = refusal(file, "training.global_batch_size=16")
    assert re.search(rf"^{re.escape(str(file))}:\d+: training.epochs='abc'", text)


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
        ("data.source", "xml", "data.source='xml': Input should be 'csv', 'tfrecord', "),
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


def test_bounds_that_no_metric_meets(write):
    for bound in ("lower_bound: .nan", "upper_bound: .inf", "max_loss: .inf"):
        assert "finite" in refusal(write(), f"evaluation.thresholds.auc={{{bound}}}")
    text = refusal(write(), "evaluation.thresholds.auc={lower_bound: 0.9, upper_bound: 0.5}")
    assert "lower_bound=0.9 is above upper_bound=0.5" in text


@pytest.mark.parametrize(
    ("line", "again", "message"),
    [
        ("name: small", "name: other", r":\d+: name is there twice, on line 1 too"),
        ("  epochs: 1", "  epochs: 5", r":\d+: training\.epochs is there twice, on line \d+ too"),
        ("    scale: z_score", "    scale: none", r"features\.groups\.0\.scale is there twice"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(write, line, again, message):
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


def test_json_schema_completes_the_profile_of_each_target():
    """Editors show each field with what it means; quantities have their units in the names."""
    schema = json.loads(json_schema())
    for target in ("KubeflowConfig", "VertexConfig"):
        fields = schema["$defs"][target]["properties"]
        assert {"image", "pipeline_root", "resources", "service_account", "labels"} <= set(fields)
        assert {"retries", "cache", "beam", "data_path", "data_gib"} <= set(fields)
        assert all("description" in field for field in fields.values())
    assert set(schema["$defs"]["NodeResources"]["properties"]) == {
        *("cpu", "memory_gib", "accelerator", "accelerator_count", "timeout_minutes"),
        *("cpu_request", "memory_request_gib", "ephemeral_storage_gib", "shm_gib"),
        *("node_selector", "tolerations", "affinity", "annotations"),
        *("volumes", "scratch_volume"),
    }
    described = ("Toleration", "Requirement", "NodeAffinityTerm", "Volume", "ScratchVolume")
    for section in described:
        fields = schema["$defs"][section]["properties"]
        assert all("description" in field for field in fields.values()), section


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "name: numbers",
            'name: "numbers',
            ':5: not valid YAML: the quote that opens in `- name: "numbers` ends with the next '
            "one, on line 12. Close it on its line, or remove it.",
        ),
        (
            '"out"',
            "'out",
            ":12: not valid YAML: the quote that opens in `folder: 'out` is never closed. Close it",
        ),
        ("  epochs: 1", "\tepochs: 1", ":10: not valid YAML: a tab begins `epochs: 1`. Indent by"),
        ("epochs: 1", "epochs: 1: 2", ":10: not valid YAML: a second `: ` in `epochs: 1: 2`, or"),
        (
            "      scale",
            "       scale",
            ":7: not valid YAML: `scale: z_score` is indented otherwise than line 5, with",
        ),
        (
            "  label",
            "   label",
            ":8: not valid YAML: `label: {column: bought, kind: binary}` is ind",
        ),
        ('"out"', '"C:\\Users"', ":12: not valid YAML: a backslash between double quotes in `fold"),
        (
            '"out"',
            "@out",
            ":12: not valid YAML: `folder: @out`: character '@' that cannot start any",
        ),
        (
            "name: small",
            "name: my_houses",
            ":1: name='my_houses': use lower-case letters, digits and hyphens, 63 at most, a "
            "letter first and no hyphen last: 'my-houses' for example.",
        ),
        ("name: small", "name: Mein Häuschen!", "no hyphen last: 'mein-hauschen' for example."),
        ("name: small", "name: 2020", ":1: name=2020: no text. Put it in quotes."),
        ("name: small", "name: '2020'", "'my-pipeline' for example."),
        (
            LINES[LINES.index("groups:") : LINES.index("  label")],
            "groups:\n",
            ":4: features.groups: empty. Write a list: [...] beside it, or below it one line `-",
        ),
        (
            LINES[LINES.index("groups:") : LINES.index("  label")],
            "groups: amount\n",
            ":4: features.groups='amount': no list. Write [amount].",
        ),
        (
            "\n  epochs: 1",
            "",
            ":9: training: empty. Write its fields below it, indented (model_fn, ",
        ),
        (
            "epochs: 1",
            "epochs: 1\n  steps: 3",
            ":10: training.epochs=1 and steps=3: give one of them",
        ),
    ],
)
def test_the_cause_and_the_fix(tmp_path, old, new, message):
    assert old in LINES
    file = tmp_path / "my.yaml"
    file.write_text(LINES.replace(old, new))
    with pytest.raises(ConfigError) as error:
        load_config(file)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{file}:")


def test_a_text_of_several_lines_in_quotes_is_taken(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text(LINES.replace('"out"', '"out\n    put"'))
    assert load_config(file).output.folder == str(tmp_path / "out put")
    file.write_text(LINES.replace('"out"', '"out\n    put"\nbeam: 3: 4'))
    with pytest.raises(ConfigError, match="a second `: ` in `beam: 3: 4`"):  # not the quote's fault
        load_config(file)


@pytest.mark.parametrize(
    ("evaluation", "judged", "against_constant", "metric"),
    [
        ({}, False, False, "auc"),
        ({"thresholds": {"recall": {"lower_bound": 0.5}}}, True, True, "auc"),
        ({"thresholds": {"binary_accuracy": {"max_loss": 0.1}}}, True, True, "binary_accuracy"),
        ({"metrics": ["precision", "binary_crossentropy"]}, False, False, "binary_crossentropy"),
        ({"require_better_than_constant": True}, True, True, "auc"),
        (
            {
                "thresholds": {"auc": {"lower_bound": 0.5}},
                "require_better_than_constant": False,
            },
            True,
            False,
            "auc",
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
