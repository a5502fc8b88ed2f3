"""Writes the page of a NormalizationValidator's report that belongs to no run of this pipeline."""

from __future__ import annotations

from pathlib import Path

from components.normalization_validator.report import REPORT_JSON
from pipeline.common.errors import ConfigError
from pipeline.page.elements import Section, Tile
from pipeline.page.render import render
from pipeline.page.sections.features import read_report, report_blocks
from shared_core.atomic_files import atomic_write

PAGE = "normalization.html"


def report_file(path: Path) -> Path | None:
    """Return the report.json that a path or its folder is; None if it is something else."""
    file = path / REPORT_JSON if path.is_dir() else path
    return file if file.name == REPORT_JSON and file.is_file() else None


def write_normalization_page(file: Path) -> Path:
    """Write `normalization.html` into the working directory, atomically, and return it.

    Not beside the report.json: a node whose artifact has another file than it wrote runs again.

    Raises:
        ConfigError: The file is no report of NormalizationValidator.
    """
    try:
        report = read_report(file)
    except ValueError as error:
        raise ConfigError(f"{error}. Name the report.json of a NormalizationValidator.") from None
    count = len(report.violations)
    limits = f"{count:,} limit{'s' if count != 1 else ''} violated" if count else "within limits"
    text = render(
        title="Normalization",
        subtitle=str(file),
        badge=Tile("limits", limits, state="bad" if count else "good"),
        sections=[Section("features", "Features", report_blocks(report))],
        links={},
    )
    page = Path(PAGE)
    with atomic_write(page) as stream:
        stream.write(text)
    return page
