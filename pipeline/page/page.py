"""Writes the page of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pipeline.page.elements import Section, Text, Tile
from pipeline.page.inputs import RunInputs
from pipeline.page.render import render
from pipeline.page.sections import (
    data,
    evaluation,
    explanation,
    features,
    graph,
    reproduce,
    training,
    verdict,
)
from pipeline.page.states import state_of
from pipeline.report.records import run_by_id
from pipeline.report.run_record import INDEX, RunRecord, records_of
from shared_core.atomic_files import atomic_write

SECTIONS: tuple[tuple[str, str, Callable[[RunInputs], Section]], ...] = (
    ("verdict", "Verdict", verdict.section_of),
    ("pipeline", "Pipeline", graph.section_of),
    ("data", "Data", data.section_of),
    ("features", "Features", features.section_of),
    ("training", "Training", training.section_of),
    ("evaluation", "Evaluation", evaluation.section_of),
    ("explanation", "Explanation", explanation.section_of),
    ("reproduce", "Reproduce", reproduce.section_of),
)
"""Anchor, heading and function of each section, in the order of the page."""

LARGEST_BYTES = 5 * 2**20
"""Size that a page should not exceed."""


def write_page(record: RunRecord) -> Path:
    """Write `report.html` into the folder of a run's record, atomically, and return the file.

    A section that cannot be made says so on the page and in the log; the others are complete.
    """
    run = inputs_of(record)
    text = render(
        title=run.config.name,
        subtitle=_subtitle(record),
        badge=Tile("verdict", record.shown_result, state=state_of(record)),
        sections=[_section(run, *each) for each in SECTIONS],
        links={"All runs": f"../../{INDEX}"},
    )
    with atomic_write(record.page) as stream:
        stream.write(text)
    return record.page


def inputs_of(record: RunRecord) -> RunInputs:
    """Return a run with its artifacts and the runs that it is compared with."""
    before = [each for each in records_of(record.output_folder) if each.name < record.name]
    previous = before[-1] if before else None
    return RunInputs(
        config=record.config,
        record=record,
        nodes=run_by_id(record.config, record.summary["run"]["id"]),
        previous=previous,
        blessed=next((each for each in reversed(before) if each.result == "blessed"), None),
    )


def _section(
    run: RunInputs, anchor: str, title: str, section_of: Callable[[RunInputs], Section]
) -> Section:
    try:
        return section_of(run)
    except Exception as error:  # damaged artifacts: the other sections are still of use
        logging.getLogger("absl").exception("The section %s of the page failed.", title)
        text = f"This section cannot be made: {type(error).__name__}: {error}"
        return Section(anchor, title, [Text(text, "warning")])


def _subtitle(record: RunRecord) -> str:
    started = datetime.fromisoformat(record.summary["run"]["started"])
    seconds = sum(node["seconds"] for node in record.summary["nodes"])
    return f"Run of {started:%A, %d %B %Y, %H:%M} ({seconds:,.0f} s in its nodes)"
