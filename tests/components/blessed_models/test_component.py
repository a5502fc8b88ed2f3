"""Records of blessed models in a folder: the latest one whose model still exists is found."""

from __future__ import annotations

import json
import pathlib

import pytest

from components.blessed_models.component import _latest_model, write_record


def _model(folder: pathlib.Path) -> str:
    path = folder / "Format-Serving" / "saved_model.pb"
    path.parent.mkdir(parents=True)
    path.touch()
    return str(folder)


def test_the_latest_record_of_an_existing_model_counts(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "records"
    assert _latest_model(str(folder)) is None
    first, second = _model(tmp_path / "1"), _model(tmp_path / "2")
    for model in (first, second, str(tmp_path / "deleted")):
        path = write_record(str(folder), model, blessing="b")
        assert json.loads(pathlib.Path(path).read_text())["model"] == model
    (folder / "9999999999999999-killed.json.writing").write_text("{")
    assert _latest_model(str(folder)) == second


def test_a_damaged_record_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "1.json").write_text("{}")
    with pytest.raises(ValueError, match=r"1\.json.*delete it"):
        _latest_model(str(tmp_path))
