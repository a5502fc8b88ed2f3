"""Arrow IPC files are read as Parquet files of the same table are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from components.arrow_example_gen.parquet import open_table

TABLE = pa.table(
    {
        "number": [0.5, None, 2.5, -1.0, 0.0],
        "big": pa.array([1, 2, None, 2**63, 5], pa.uint64()),
        "kind": pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
        "several": [[1, 2], [], None, [3], [4]],
        "nothing": pa.nulls(5),
        "place": [{"lat": 1.0}] * 5,
    }
)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_as_parquet(tmp_path: Path, compression: str) -> None:
    feather.write_feather(TABLE, tmp_path / "a", compression=compression, chunksize=2)
    pq.write_table(TABLE, tmp_path / "b", row_group_size=2)
    arrow, parquet = (open_table([str(tmp_path / name)], str(tmp_path)) for name in "ab")
    assert arrow.columns == parquet.columns
    assert arrow.lists == parquet.lists
    assert arrow.left_out == parquet.left_out
    assert [*arrow.groups.values()] == [*parquet.groups.values()] == [[2, 2, 1]]
    names = ["number", "big", "kind", "several"]
    for of_arrow, of_parquet in zip(
        arrow.all_blocks(names), parquet.all_blocks(names), strict=True
    ):
        assert of_arrow.cells.to_pylist() == of_parquet.cells.to_pylist()
        assert of_arrow.places.tolist() == of_parquet.places.tolist()


def test_a_damaged_file(tmp_path: Path) -> None:
    feather.write_feather(TABLE, tmp_path / "a")
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="a is not a Parquet or Arrow file"):
        open_table([str(tmp_path / "a")], str(tmp_path))
