"""`init`: a whole YAML that `run` takes, from a data file alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, strategies

from components.arrow_example_gen.splitting import cuts_of
from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.config.config_file import load_config
from pipeline.data.data_sources import split_column
from pipeline.features.first_config import _pipeline_name, _training, init_file
from pipeline.features.splits import split_sizes
from pipeline.preflight.preflight import check_data
from pipeline.preflight.preflight_rows import Part

ROWS = 300


def init(frame: pd.DataFrame, file: Path, *arguments: str) -> tuple[Any, str]:
    """Write the table and its first YAML; return the YAML's configuration and text."""
    getattr(frame, f"to_{file.suffix[1:]}")(file, index=False)
    output = file.with_suffix(".yaml")
    assert main(["init", str(file), "--output", str(output), "--force", *arguments]) == 0
    return load_config(output), output.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Ten columns' worth of a small table, with a label of each kind in it."""
    random = np.random.default_rng(0)
    size = random.uniform(20, 200, ROWS).round(2)
    frame = pd.DataFrame(
        {
            "size": size,
            "town": random.choice(["Oslo", "Bergen", "Moss"], ROWS, p=[0.6, 0.3, 0.1]),
            "sold": np.where(random.uniform(size=ROWS) < 0.2, "yes", "no"),
            "price": (size * 1000 * random.lognormal(0, 0.3, ROWS)).round(),
        }
    )
    path = tmp_path_factory.mktemp("table") / "My Houses.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("label", "kind", "judged_by"),
    [
        ("price", "regression", "mean_absolute_error"),
        ("sold", "binary", "auc"),
        ("town", "multiclass", "sparse_categorical_accuracy"),
    ],
)
def test_the_yaml_is_whole_and_asks_for_more_than_a_constant(
    table, tmp_path, label, kind, judged_by
):
    written = init_file(str(table), label=label, output=tmp_path / "first.yaml")
    assert (written.label, written.kind) == (label, kind)
    config = load_config(written.path)
    assert config.name == "my-houses"
    assert config.label.kind == kind
    assert config.evaluation.is_judged
    assert config.evaluation.against_constant
    assert config.evaluation.judged_by(kind) == judged_by
    assert config.data.path == str(table)
    assert config.training.early_stopping is not None
    text = written.path.read_text()
    if kind == "binary":
        assert config.label.positive == "yes"
        assert "'yes' is the positive class" in text


def test_without_a_label_option_one_is_chosen_by_its_name(table, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--data", str(table)]) == 0
    printed = capsys.readouterr().out
    assert "my-houses.yaml: predicts price (regression)" in printed
    assert "note: no --label: price was chosen by its name" in printed
    assert "# price was chosen by its name" in (tmp_path / "my-houses.yaml").read_text()


def test_small_whole_numbers_are_judged_by_squared_errors(tmp_path, capsys):
    random = np.random.default_rng(4)
    goals = np.r_[np.arange(8), np.minimum(random.poisson(1.5, 400), 7)] - 3
    goals[0] += 13
    frame = pd.DataFrame({"x": random.normal(size=408), "goals": goals})
    config, text = init(frame, tmp_path / "t.csv", "--label", "goals")
    assert config.label.kind == "regression"
    (note,) = (line for line in capsys.readouterr().out.splitlines() if "note: " in line)
    assert f"goals has whole numbers from {goals.min()} to {goals.max()}" in note
    assert "kind: multiclass" in note
    assert f"# {note.partition('note: ')[2]}" in text
    assert config.evaluation.judged_by("regression") == "root_mean_squared_error"
    assert config.training.label_scale == "z_score"
    visits, _ = init(frame.assign(goals=4 * goals), tmp_path / "v.csv", "--label", "goals")
    assert visits.evaluation.judged_by("regression") == "mean_absolute_error"  # of 40 values
    assert visits.training.label_scale == "auto"


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/My Höuses.csv.gz", "my-h-uses"), ("2024_s.parquet", "data-2024-s"), ("x" * 80, "x" * 63)],
)
def test_the_name_is_made_of_the_files(path, name):
    assert _pipeline_name(path) == name


@pytest.mark.parametrize("rows", [1, 150, 2_000_000])
def test_a_training_fits_the_rows(rows):
    text = "\n".join(_training(rows))
    batch = int(text.partition("global_batch_size: ")[2].split()[0])
    assert 1 <= batch <= rows
    values = yaml.safe_load(text)["training"]
    assert values["early_stopping"]["patience_epochs"] < values["epochs"]
    assert (values["model"]["dropout"] == 0) == (rows >= 10_000)
    assert values["model"]["hidden_units"] == ([64, 32] if rows < 2_000 else [128, 64])
    assert "kind" not in values["model"]


def test_a_file_as_a_stranger_has_it(tmp_path, capsys):
    """Encoding, codes, missing labels and a leak: said, written, and read back."""
    random = np.random.default_rng(2)
    lines = ["größe;class;zip;sq ft;copy"]
    for i in range(300):
        sold = "ja" if random.uniform() < 0.4 else "nein"
        size = f"{random.normal():.3f}".replace(".", ",")
        sold = "NA" if i % 30 == 7 else sold
        lines.append(f"{size};{sold};{i % 40:05d};{i % 60 * 3 + 7};{int(sold == 'ja')}")
    (tmp_path / "häuser.csv").write_bytes("\n".join(lines).encode("cp1252"))
    output = tmp_path / "first.yaml"
    command = ["init", "--data", str(tmp_path / "häuser.csv"), "--output", str(output)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    config = load_config(output)
    assert config.label.column == "class"
    assert config.data.drop_rows_without_label
    assert "note: 10 of 300 rows have no value in class" in printed
    assert config.data.csv.encoding == "cp1252"
    assert config.data.csv.text == ("zip",)
    used = {name for group in config.features.groups for name in group.columns}
    assert used == {"größe", "zip", "sq ft"}
    assert "copy: leaks the label: it maps one-to-one" in " ".join(printed.split())
    assert "leaks the label" in output.read_text(encoding="utf-8")


def test_few_different_rows_are_reported(tmp_path, capsys):
    """Equal rows would come into one split, which then differs from the other by chance."""
    random = np.random.default_rng(2)
    kind, sold = random.integers(0, 3, 400), random.integers(0, 2, 400)
    frame = pd.DataFrame({"kind": kind.astype(str), "size": kind * 7 + 0.5, "sold": sold})
    config, _ = init(frame, tmp_path / "few.csv")
    assert "warning: only 6 different rows among 400" in capsys.readouterr().out
    assert config.data.split.by == "row"
    config, _ = init(frame.assign(size=random.normal(size=400)), tmp_path / "few.csv")
    assert "different rows" not in capsys.readouterr().out
    assert config.data.split.by == "content"


def test_a_rare_class_is_split_by_class(tmp_path):
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"size": random.normal(size=300), "kind": ["a", "b", "c"] * 100})
    frame.loc[:80, "kind"] = "a"
    config, text = init(frame, tmp_path / "rare.parquet")
    assert (config.data.source, config.data.split.by) == ("parquet", "stratified")
    assert "Rows of 'c': 73." in text


def table_of(kind: str, rows: int) -> pd.DataFrame:
    """A number, a text, and a label of a kind, the n-th class in the n-th row and so on."""
    random = np.random.default_rng(rows)
    labels = {
        "regression": random.normal(size=rows).round(4),
        "two classes": [("no", "yes")[i % 2] for i in range(rows)],
        "three classes": [f"c{i % 3}" for i in range(rows)],
        "a single row": ["rare" if i == rows // 2 else f"c{i % 2}" for i in range(rows)],
        "two in floats": [f"{float(i in (1, 4)):.1f}" for i in range(rows)],
    }
    size = random.normal(size=rows).round(3)
    return pd.DataFrame(
        {"size": size, "town": [("Oslo", "Moss")[i % 2] for i in range(rows)], "y": labels[kind]}
    )


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        *(("regression", 6), ("regression", 10), ("two classes", 10), ("three classes", 15)),
        *(("a single row", 100), ("two in floats", 10)),
    ],
)
def test_a_small_table_is_refused_or_passes_the_checks_of_run(
    kind, rows, tmp_path, capsys, monkeypatch
):
    """And the batch fits the rows that come into the train split, of which there are some."""
    monkeypatch.chdir(tmp_path)
    table_of(kind, rows).to_csv("small.csv", index=False)
    if main(["init", "small.csv", "--label", "y"]) == 2:
        assert rows < 10 or kind == "two in floats"
        assert not (tmp_path / "small.yaml").exists()
        return
    printed = capsys.readouterr().out
    config = load_config(tmp_path / "small.yaml")
    seen: Any = check_data(config)
    column = split_column(config.data, config.features)
    splits: Any = Part("all", config.data.path, seen, config.data, column).splits
    counts = Counter(splits.tolist())
    assert counts["train"] >= config.training.global_batch_size
    assert (f"evaluated on only {counts['eval']} row" in printed) == (counts["eval"] < 30)
    assert f"# For {counts['train']} training rows" in (tmp_path / "small.yaml").read_text()
    if config.data.split.by == "stratified":
        labels = table_of(kind, rows).y[splits == "train"]
        assert set(labels) == set(table_of(kind, rows).y)


@pytest.mark.parametrize(
    ("labels", "printed"),
    [
        (["a"] * 30, "constant"),
        (["a"] * 29 + ["b"], "in only 1 row"),
        (["a", "b"] * 4 + [""] * 22, "8 rows with a value of 'y' are too few"),
        ([1], "1 row is too few"),
    ],
)
def test_a_label_that_no_model_can_be_judged_on(labels, printed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = table_of("regression", len(labels)).assign(y=labels)
    frame.to_csv("small.csv", index=False)
    assert main(["init", "small.csv", *(["--label", "y"] if len(labels) > 1 else [])]) == 2
    assert printed in capsys.readouterr().err
    assert not (tmp_path / "small.yaml").exists()


def test_what_run_would_refuse_is_not_written(table, tmp_path):
    def refuse(config):
        assert config.data.path == str(table)
        raise ConfigError("the column has no value")

    with pytest.raises(ConfigError, match=r"no YAML is written.* the column has no value"):
        init_file(str(table), label="price", output=tmp_path / "a.yaml", check=refuse)
    assert not (tmp_path / "a.yaml").exists()


@given(
    groups=strategies.lists(strategies.integers(1, 60), min_size=1, max_size=6),
    kind=strategies.sampled_from(["binary", "multiclass", "regression"]),
)
def test_sizes_are_those_of_the_split(groups, kind):
    """Reference: the cuts of ExampleGen, group by group."""
    try:
        sizes = split_sizes(groups, label="y", kind=kind, path="t.csv")
    except ConfigError:
        assert sum(groups) < 10 or min(groups) == 1 or max(groups) == 1
        return
    shares = (100 - sizes.eval_percent, sizes.eval_percent)
    cuts = [cuts_of(list(range(group)), shares)[0] for group in groups]
    assert sizes.train == sum(cut + 1 for cut in cuts)
    assert sizes.train + sizes.eval == sum(groups)
    assert sizes.eval > 0


def test_any_names_and_values_give_a_yaml_that_can_be_read(tmp_path):
    """They are in comments, too; a column that is called `label` need not be the label."""
    value = "\x1b[2J\x07\u2028\x85# label: "
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "label": random.choice(["a", "b", f"{value}d"], ROWS),
            f"a{value}b": random.normal(size=ROWS),
            "features": ["one"] * ROWS,
            f"y{value}z": random.choice(["no", f"yes{value}"], ROWS),
        }
    )
    name = frame.columns[-1]
    config, text = init(frame, tmp_path / "t.csv", "--label", name)
    assert config.label.column == name
    used = {column for group in config.features.groups for column in group.columns}
    assert used == {"label", f"a{value}b"}
    comments = [line for line in text.split("\n") if line.strip().startswith("#")]
    assert all(line.isprintable() for line in comments)


@pytest.mark.parametrize(("constant", "wide"), [(0, True), (50, False)])
def test_init_writes_a_small_model(tmp_path: Path, constant: int, wide: bool) -> None:
    """Columns that are left out do not count."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(120, 80))).rename(columns=lambda i: f"x{i}")
    frame.iloc[:, :constant] = 1.5
    frame["y"] = (frame["x70"] + random.normal(size=120) > 0).astype(int)
    config, _ = init(frame, tmp_path / "t.parquet", "--label", "y")
    training = config.training
    assert (training.model.hidden_units == (16,)) == wide
    assert (training.model.knots == 0) == wide
    assert (training.optimizer.weight_decay == 2.0) == wide
