"""The README's pipeline, run as it stands on rows of the taxi data that ships with TFX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import components.normalization_validator

README = Path(components.normalization_validator.__file__).with_name("README.md")

pytestmark = pytest.mark.pipelines


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


def _run(block: str, folder: Path) -> dict[str, Any]:
    from tfx import v1 as tfx

    names: dict[str, Any] = {"DATA": str(folder / "data")}
    exec(compile(block, str(README), "exec"), names)
    pipeline = tfx.dsl.Pipeline(
        pipeline_name="readme",
        pipeline_root=str(folder / "root"),
        components=names["components"],
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(folder / "metadata.db")
        ),
        enable_cache=True,
        # With an image named, TFX is not packed again for each node.
        beam_pipeline_args=["--runner=FnApiRunner", "--sdk_container_image=unused"],
    )
    tfx.orchestration.LocalDagRunner().run(pipeline)
    return names


def test_the_readmes_pipeline_runs_and_a_wrong_scale_stops_it(blocks, tmp_path, monkeypatch):
    import tfx

    from components.normalization_validator.executor import NormalizationError
    from components.normalization_validator.report import Report

    simple = Path(tfx.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple"
    rows = (simple / "data.csv").read_text().splitlines(keepends=True)[:2_001]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.csv").write_text("".join(rows))
    (tmp_path / "taxi_preprocessing.py").write_text(blocks[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    _run(blocks[0], tmp_path)
    node = tmp_path / "root" / "NormalizationValidator"
    (report_file,) = node.glob("report/*/report.json")
    report = Report.model_validate_json(report_file.read_text())
    assert report.blessed
    assert [(c.name, c.kind) for c in report.split("train").columns] == [
        ("fare", "min_max"),
        ("trip_miles", "z_score"),
        ("trip_seconds", "z_score"),
    ]
    assert sum(split.rows for split in report.splits) == 2_000
    assert len(list(node.glob("blessing/*/BLESSED"))) == 1

    # The same pipeline, cached up to the validator, with a wrong kind: fare is not z-scored.
    wrong = blocks[0].replace('"fare": "min_max"', '"fare": "z_score"')
    assert wrong != blocks[0]
    with pytest.raises(NormalizationError, match=r"2 limits are violated:\n  - column 'fare' "):
        _run(wrong, tmp_path)
    assert len(list(node.glob("report/*/report.json"))) == 2  # TFX removed the failed output
    (kept,) = node.glob("report/*-failed/report.json")
    assert "std 0." in kept.read_text()
