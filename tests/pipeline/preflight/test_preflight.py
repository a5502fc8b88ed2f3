"""Bad input is rejected before anything expensive runs; the error names file, field and fix."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.common.errors import ConfigError
from pipeline.config.config import PipelineConfig
from pipeline.config.config_file import load_config
from pipeline.preflight import preflight


def refusal(file: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        _check(load_config(file, overrides))
    return str(caught.value)


def _check(config: PipelineConfig) -> None:
    preflight.check_writable(config)
    preflight.check(config)


def test_good_input_passes(write):
    seen = preflight.check(load_config(write()))
    assert seen is not None
    assert seen.rows == 60
    assert seen.columns == {"amount": "float", "age": "int", "city": "string", "bought": "int"}


HEADER = "amount,age,city,bought\n"


@pytest.mark.parametrize(
    ("csv", "facts"),
    [
        ("", ["data.path=", "rows.csv is empty"]),
        (HEADER, ["no rows below the header line"]),
        (f"{HEADER}1.5,20,Oslo,1\n2.5,21\n", ["line 3: 2 cells under a header of 4 columns"]),
        ("amount,age,age,bought\n1,2,3,1\n", ["repeated: age"]),
        (
            "1.5,20,Oslo,1\n2.5,21,Moss,0\n",
            ["first line looks like data: '1.5,20,Oslo,1'", "data.csv.header: false"],
        ),
        (
            HEADER + "".join(f",{20 + i},Oslo,{i % 2}\n" for i in range(40)),
            ["column 'amount'", "no value in any of the 40 rows"],
        ),
    ],
)
def test_a_file_that_cannot_be_read_or_used(write, csv, facts):
    text = refusal(write(csv=csv))
    assert all(fact in text for fact in facts), text


@pytest.mark.parametrize(
    ("overrides", "facts"),
    [
        ("features.groups.0.columns=[amuont]", ["'amuont'", "'numbers'", "amount"]),
        (
            "features.groups.0.columns=[city] features.groups.1.columns=[age]",
            ["'city'", "string"],
        ),
        ("data.path=nothing.csv", ["/nothing.csv: no such file"]),
        ("data.path=row.csv", ["/row.csv: no such file", "Did you mean", "/rows.csv?"]),
        ("data.path=package://no_such_package/rows.csv", ["no Python package 'no_such_package'"]),
        # Tests hide the GPUs.
        ("training.require_gpu=true", ["require_gpu=True, but Tens", "set require_gpu to false"]),
        ("features.label.column=bougth", ["'bougth'", "bought"]),
        ("evaluation.slices=[citi]", ["slices: column 'citi'", "did you mean 'city'?"]),
        ("data.csv.text=[agee]", ["data.csv.text names 'agee'", "did you mean 'age'?"]),
        ("data.source=parquet", ["is not a Parquet or Arrow file"]),
        ("features.derive=no_such_module.function", ["features.derive=", "no_such_module"]),
        ("training.model_fn=no_such_module.function", ["training.model_fn=", "no_such_module"]),
        ("training.metrics=[no_such_module.metric]", ["training.", "no_such_module"]),
        ("output.folder=gs://bucket/out", ["output.folder=gs://bucket/out", "needs a folder"]),
        # A file in the way: permissions do not stop root, who runs these tests in a container.
        ("output.folder=rows.csv/out", ["output.folder=", "rows.csv/out: cannot write there"]),
    ],
)
def test_a_setting_that_does_not_fit_data_or_machine(write, overrides, facts):
    text = refusal(write(), *overrides.split())
    assert all(fact in text for fact in facts), text


def test_a_global_batch_larger_than_the_data_first_later_or_searched(write):
    text = refusal(write(), "training.global_batch_size=128")
    assert "=128 exceeds the 37 rows of the train split" in text
    assert "Use 37 or less" in text
    text = refusal(write(), "training.global_batch_size={0: 8, 5: 128}")
    assert "training.global_batch_size=128 exceeds the 37 rows of the train split" in text
    tuning = {"search": {"global_batch_size": {"min": 8, "max": 128}}}
    text = refusal(write(lambda c: c.update(tuning=tuning)))
    assert "tuning.search.global_batch_size=128 exceeds the 37 rows of the train split" in text


@pytest.mark.parametrize(
    ("override", "printed"),
    [
        ("strategy=miroredd", "training.strategy='miroredd': did you mean 'mirrored'?"),
        (
            "optimizer.options={beta_9: 0.5}",
            "training.optimizer.options={'beta_9': 0.5} do not fit AdamW",
        ),
        (
            "metrics=[acuracy]",
            "training.metrics='acuracy' is not a Keras metric; did you mean 'accuracy'?",
        ),
        (
            "early_stopping={monitor: acuracy}",
            "training.early_stopping.monitor='acuracy' is not evaluated; did you mean 'accuracy'?",
        ),
    ],
)
def test_a_name_of_the_training_that_stands_for_nothing(write, override, printed):
    text = refusal(write(), f"training.{override}")
    assert re.sub(r"^(--set |\S+pipeline.yaml:\d+: )", "", text).startswith(printed)


def test_unknown_keras_names_are_errors_before_anything_is_imported(write):
    file = write(lambda c: c["training"].update(optimizer={"name": "adamwx"}))
    script = (
        "import sys; from pipeline.cli.cli import main\n"
        f"code = main(['run', '--config', {str(file)!r}])\n"
        "print(code, [n for n in ('keras', 'tensorflow', 'tfx') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    (line,) = (i for i, text in enumerate(file.read_text().splitlines(), 1) if "adamwx" in text)
    printed = "training.optimizer.name='adamwx' is not a Keras optimizer; did you mean 'adamw'?"
    assert done.stderr.splitlines() == [f"{file}:{line}: {printed}"]
    assert done.stdout == "2 []\n"
    assert not (file.parent / "out").exists()


def test_a_searched_value_that_stands_for_nothing(write):
    for search, message in (
        ({"model_fn": {"values": ["no_such_module.build"]}}, "no_such_module"),
        (
            {"loss": {"values": ["bce", "bce2"]}},
            "tuning.search: training.loss='bce2' is not a Keras loss; did you mean 'bce'?",
        ),
    ):
        tuning = {"search": search, "objective": "auc"}
        assert message in refusal(write(lambda c, tuning=tuning: c.update(tuning=tuning)))


def test_several_workers_are_refused_before_any_node_runs(write, monkeypatch):
    task = {"type": "worker", "index": 0}
    cluster = {"cluster": {"worker": ["a:1", "b:1"]}, "task": task}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert "with 2 workers in TF_CONFIG" in refusal(write(), "training.strategy=mirrored")


def test_eval_file_that_lacks_a_column(write, tmp_path):
    (tmp_path / "eval.csv").write_text("amount,age,bought\n1.5,20,1\n")
    text = refusal(write(), "data.eval_path=eval.csv")
    assert "data.eval_path=" in text
    assert "missing column: city" in text


def test_schema_file_that_is_none(write, tmp_path):
    (tmp_path / "schema.pbtxt").write_text("not a schema")
    assert "not a TFDV schema" in refusal(write(), "schema.path=schema.pbtxt")
    assert "cannot read it" in refusal(write(), "schema.path=nothing.pbtxt")


def test_features_that_do_not_fit_the_schema_file(write, tmp_path):
    schema = """
        feature { name: "amount" type: FLOAT }
        feature { name: "age" type: INT }
        feature { name: "city" type: BYTES string_domain { value: "Oslo" } }
        feature { name: "bought" type: INT }
    """
    (tmp_path / "schema.pbtxt").write_text(schema)
    preflight.check(load_config(write(), ["schema.path=schema.pbtxt"]))
    (tmp_path / "schema.pbtxt").write_text(schema.replace("type: BYTES", "type: FLOAT"))
    text = refusal(write(), "schema.path=schema.pbtxt")
    assert f"features, by schema.path={tmp_path / 'schema.pbtxt'}: group " in text
    assert "column 'city' is of type float" in text
