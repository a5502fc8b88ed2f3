"""What `init` writes and tells of CSV that its cells alone do not explain, and what `run` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from pipeline.cli.cli import main
from pipeline.config.config import PipelineConfig
from pipeline.config.config_file import load_config
from pipeline.data.peek import peek

RANDOM = np.random.default_rng(0)


class First(NamedTuple):
    """What `init` wrote of a file, and told."""

    config: PipelineConfig
    text: str
    told: str

    def values(self, column: str) -> list[Any]:
        """Of a column, in rows' order, as `run` reads them; a missing one is left out."""
        seen = peek(self.config.data)
        assert seen is not None
        assert seen.sample is not None
        return seen.sample.values(column).values.to_pylist()

    def columns(self) -> dict[str, str]:
        """Column -> type, as `run` sees it."""
        seen = peek(self.config.data)
        assert seen is not None
        return dict(seen.columns)

    def used(self) -> set[str]:
        """The columns of the features."""
        return {name for group in self.config.features.groups for name in group.columns}


def first(folder: Path, capsys: Any, content: str, *arguments: str) -> First:
    (folder / "rows.csv").write_text(content, encoding="utf-8")
    output = folder / "rows.yaml"
    command = ["init", "--data", str(folder / "rows.csv"), "--output", str(output), *arguments]
    assert main(command) == 0, capsys.readouterr().err
    return First(load_config(output), output.read_text(encoding="utf-8"), capsys.readouterr().out)


def refusal(folder: Path, capsys: Any, content: str, *arguments: str) -> str:
    (folder / "rows.csv").write_text(content, encoding="utf-8")
    output = folder / "rows.yaml"
    command = ["init", "--data", str(folder / "rows.csv"), "--output", str(output), *arguments]
    assert main(command) == 2
    assert not output.exists()
    return capsys.readouterr().err


def lines_without_header() -> list[str]:
    return [
        f"{RANDOM.normal():.3f},{('x', 'y', 'z')[i % 3]},{RANDOM.normal() * 9:.2f}"
        for i in range(80)
    ]


def test_a_first_line_that_looks_like_data_is_asked_about(tmp_path, capsys):
    content = "\n".join(["657.7,x,2.5", *lines_without_header()])
    told = refusal(tmp_path, capsys, content)
    assert f"{tmp_path / 'rows.csv'}: the first line looks like data: '657.7,x,2.5'" in told
    assert "--no-header" in told


def test_a_file_without_a_header_is_read_where_init_is_told(tmp_path, capsys):
    lines = lines_without_header()
    found = first(tmp_path, capsys, "\n".join(lines), "--no-header")
    assert found.config.data.csv.header is False
    assert found.config.label.column == "column_3"
    assert found.used() == {"column_1", "column_2"}
    assert "note: header: the first line is a row; columns are column_1 to column_3." in found.told
    assert "# header: the first line is a row" in found.text
    assert found.values("column_1") == pytest.approx(
        [float(line.split(",")[0]) for line in lines], abs=1e-6
    )


def test_names_of_numbers_are_read_where_init_is_told(tmp_path, capsys):
    rows = [",".join(f"{value:.2f}" for value in row) for row in RANDOM.random((50, 3))]
    content = "\n".join(["1,2,3", *rows])
    found = first(tmp_path, capsys, content, "--header")
    assert found.config.data.csv.header is True
    assert set(found.columns()) == {"1", "2", "3"}


def test_only_csv_has_a_header(tmp_path, capsys):
    command = ["init", "--data", str(tmp_path / "rows.parquet"), "--no-header"]
    assert main(command) == 2
    assert "--no-header: the data are parquet" in capsys.readouterr().err


def test_the_node_reads_files_without_a_header(tmp_path):
    """The same rows on Beam as in the look at the data."""
    import apache_beam as beam
    import tensorflow as tf
    from apache_beam.testing.util import assert_that, equal_to

    from components import CsvOptions
    from components.arrow_example_gen.read_csv import ReadCsv

    (tmp_path / "rows.csv").write_text("5,x\n6,y\n7,\n")

    def row(numbered: tuple[int, tf.train.Example]) -> tuple[int, int, list[bytes]]:
        features = numbered[1].features.feature
        (number,) = features["column_1"].int64_list.value
        return numbered[0], number, list(features["column_2"].bytes_list.value)

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = ReadCsv([str(tmp_path / "rows.csv")], CsvOptions(header=False))
        rows = pipeline | read | beam.Map(row)
        assert_that(rows, equal_to([(0, 5, [b"x"]), (1, 6, [b"y"]), (2, 7, [])]))
