"""The section Data, compared with the statistics and anomalies that TFDV writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_inputs import Artifacts, blocks_of, page_run, texts_of

from pipeline.page.data import section_of
from pipeline.page.elements import Chart, Items, Text, Tiles
from pipeline.report.split_statistics import read_statistics
from pipeline.report.tables import Table

tfdv = pytest.importorskip("tensorflow_data_validation")

STATISTICS = ("StatisticsGen", "statistics")
ANOMALIES = ("ExampleValidator", "anomalies")


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    area = rng.normal(100, 30, rows)
    area[0] = 1e6  # squeezes TFDV's intervals of equal width
    area[1:11] = np.nan
    return pd.DataFrame(
        {
            "area": area.astype(np.float32),
            "rooms": rng.integers(1, 8, rows),
            "city": np.where(rng.random(rows) < 0.5, "Oslo", "Ulm"),
            "constant": np.full(rows, 3.0, np.float32),
        }
    )


def write_statistics(folder: Path, **splits: pd.DataFrame) -> Path:
    for split, data in splits.items():
        (folder / f"Split-{split}").mkdir(parents=True)
        found = tfdv.generate_statistics_from_dataframe(data)
        (folder / f"Split-{split}" / "FeatureStats.pb").write_bytes(found.SerializeToString())
    return folder


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    folder = tmp_path_factory.mktemp("artifacts")
    train, evaluated = frame(3000, 0), frame(1500, 1)
    evaluated.loc[0, "city"] = "Bergen"
    statistics = write_statistics(folder / "1", train=train, eval=evaluated)
    schema = tfdv.infer_schema(tfdv.load_stats_binary(f"{statistics}/Split-train/FeatureStats.pb"))
    for split in ("train", "eval"):
        found = tfdv.validate_statistics(
            tfdv.load_stats_binary(f"{statistics}/Split-{split}/FeatureStats.pb"), schema
        )
        file = folder / "2" / f"Split-{split}" / "SchemaDiff.pb"
        file.parent.mkdir(parents=True)
        file.write_bytes(found.SerializeToString())
    return {STATISTICS: statistics, ANOMALIES: folder / "2"}


def test_each_column_has_the_statistics_of_the_data(tmp_path: Path, artifacts: Artifacts) -> None:
    blocks = section_of(page_run(tmp_path, artifacts)).blocks
    (tiles,) = blocks_of(blocks, Tiles)
    assert tiles.tiles[0].note == "66.7% of all"
    assert [(tile.name, tile.value) for tile in tiles.tiles] == [
        ("rows in train", "3,000"),
        ("rows in eval", "1,500"),
        ("raw columns", "4"),
    ]
    (table,) = blocks_of(blocks, Table)
    data = frame(3000, 0)
    cells = {row.cells[0].text: row.cells for row in table.rows}
    names = [column.name for column in table.columns]
    for name in ("area", "rooms", "constant"):
        values = dict(zip(names, (cell.value for cell in cells[name]), strict=True))
        column = data[name].astype(np.float64)
        assert values["missing"] == column.isna().mean()
        for statistic in ("mean", "min", "max"):
            assert values[statistic] == pytest.approx(getattr(column, statistic)(), rel=1e-6)
        assert values["std"] == pytest.approx(column.std(ddof=0), rel=1e-6)
    city = texts_of(table)["city"]
    top = data["city"].value_counts()
    assert (city["type"], city["distinct"]) == ("text", "2")
    assert (city["most frequent"], city["its share"]) == (top.index[0], f"{top.iloc[0] / 3000:.2%}")


def test_missing_counts_rows_with_an_empty_list(tmp_path: Path) -> None:
    """Examples hold a missing value as an empty list, which TFDV counts as a value."""
    statistics = tfdv.generate_statistics_from_dataframe(frame(40, 0))
    city = next(f for f in statistics.datasets[0].features if f.path.step[0] == "city")
    city.string_stats.common_stats.tot_num_values = 30
    folder = tmp_path / "1" / "Split-train"
    folder.mkdir(parents=True)
    (folder / "FeatureStats.pb").write_bytes(statistics.SerializeToString())
    (table,) = blocks_of(section_of(page_run(tmp_path, {STATISTICS: folder.parent})).blocks, Table)
    assert texts_of(table)["city"]["missing"] == "25.00%"


def test_charts_show_the_shares_of_each_split(tmp_path: Path, artifacts: Artifacts) -> None:
    (table,) = blocks_of(section_of(page_run(tmp_path, artifacts)).blocks, Table)
    charts = {}
    for row in table.rows:
        charts[row.cells[0].text] = blocks_of(row.details, Chart)
    (city,) = charts["city"]
    for split, data in (("train", frame(3000, 0)), ("eval", frame(1500, 1))):
        for value, share in zip(city.data["value"], city.data[split], strict=True):
            assert share == pytest.approx((data["city"] == value).mean(), abs=1e-3)
    (area,) = charts["area"]
    assert sum(area.data["train"]) == pytest.approx(1, abs=1e-3)
    (rooms,) = charts["rooms"]
    assert sum(rooms.data["train"]) == pytest.approx(1, abs=1e-3)
    assert charts["constant"] == []
    (constant,) = (row for row in table.rows if row.cells[0].text == "constant")
    assert "every value is 3" in blocks_of(constant.details, Text)[0].text


def test_anomalies_are_sentences(tmp_path: Path, artifacts: Artifacts) -> None:
    blocks = section_of(page_run(tmp_path, artifacts)).blocks
    (sentence,) = (text for items in blocks_of(blocks, Items) for text in items.texts)
    assert sentence.startswith("eval, column city: Unexpected string values. ")
    assert "Bergen" in sentence


def test_a_run_without_statistics_says_so(tmp_path: Path) -> None:
    blocks = section_of(page_run(tmp_path, {})).blocks
    assert "StatisticsGen has not finished" in blocks[0].text  # pyright: ignore
    gone = section_of(page_run(tmp_path / "2", {STATISTICS: tmp_path / "gone"})).blocks
    assert "were deleted" in gone[0].text  # pyright: ignore


def test_damaged_statistics_name_the_file(tmp_path: Path) -> None:
    folder = write_statistics(tmp_path / "1", train=frame(50, 0))
    (folder / "Split-train" / "FeatureStats.pb").write_bytes(b"\xff\xff\xff")
    with pytest.raises(ValueError, match=r"FeatureStats\.pb is damaged"):
        read_statistics(folder)
