"""The page of a run in Chromium: until the first paint, and from a click to the next frame.

A pipeline runs on 1,000 columns and 200 slices, and its page is compared with that of the taxi
example, which has 18 columns and 5 slices. Each round opens both pages in a new window, sorts a
table of each by a number, filters it, and opens the details of its first row. A time is that until
Chromium has painted the frame behind the change, by the browser's own clock.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from playwright.sync_api import Browser, sync_playwright

from benchmarks import _report
from benchmarks._result import Row
from benchmarks._taxi import FOLDER, ROOT, taxi

COLUMNS, SLICES, ROWS = 1_000, 200, 4_000
TAXI = "the taxi page"
WANTED = {"first paint": 1.5, "sort": 0.1, "filter": 0.1, "open the details": 0.1}  # seconds

_FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
_PAINTS = "performance.getEntriesByName('first-contentful-paint')"
_TIMED = (
    "async () => {{ const start = performance.now(); {0}; await {1}; "
    "return performance.now() - start; }}"
)
_TABLE = "document.querySelector('#features .table')"
ACTIONS = {
    "sort": f"{_TABLE}.querySelectorAll('th.number button.sort')[1].click()",
    "filter": (
        f"const box = {_TABLE}.querySelector('.filter'); box.value = '1'; "
        "box.dispatchEvent(new Event('input', {bubbles: true}))"
    ),
    "open the details": f"{_TABLE}.querySelector('button.open').click()",
}


def main() -> None:
    """Measures both pages in turns."""
    arguments = _report.parser(__file__, rounds=7).parse_args()
    columns, slices = (40, 10) if arguments.quick else (COLUMNS, SLICES)
    taxi()
    with sync_playwright() as playwright:
        wide = f"{columns:,} columns, {slices} slices"
        pages = {
            wide: write_wide(FOLDER / f"wide-{columns}", columns, slices),
            TAXI: max((FOLDER / "taxi" / "runs").glob("*/report.html")),
        }
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        found: dict[str, list[Mapping[str, float]]] = {name: [] for name in pages}
        for _ in range(1 if arguments.quick else arguments.runs):
            for name, page in pages.items():
                found[name].append(measure(browser, page))
                print(name, {what: f"{each:.3f} s" for what, each in found[name][-1].items()})
        browser.close()
        size = pages[wide].stat().st_size / 2**20
    rows = []
    for what in WANTED:
        ours, taxis = ([one[what] for one in found[name]] for name in pages)
        rows.append(Row(f"{what}, {wide}", TAXI, ours, taxis))
    notes = {
        f"{what}, {wide}": f"{what.capitalize()} takes "
        f"{statistics.median(one[what] for one in found[wide]):.3f} s with {wide} "
        f"(wanted: {wanted} s)."
        for what, wanted in WANTED.items()
    }
    notes["size"] = f"The page of {wide} has {size:.1f} MiB (wanted: 5)."
    _report.publish(__file__, rows, quick=arguments.quick, notes=notes)


def measure(browser: Browser, file: Path) -> dict[str, float]:
    """Returns seconds until the first paint, and of each action."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    page.wait_for_function(f"{_PAINTS}.length")
    found = {"first paint": page.evaluate(f"{_PAINTS}[0].startTime") / 1000}
    for what, action in ACTIONS.items():
        found[what] = page.evaluate(_TIMED.format(action, _FRAME)) / 1000
    page.close()
    return found


def write_wide(folder: Path, columns: int, slices: int) -> Path:
    """Runs a pipeline on a table of many columns and returns the page of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        random.lognormal(size=(ROWS, columns)).astype(np.float32),
        columns=[f"measurement_{index}" for index in range(columns)],
    )
    table["place"] = [f"place {index % slices}" for index in range(ROWS)]
    table["bought"] = random.integers(0, 2, ROWS)
    table.to_csv(folder / "rows.csv", index=False)
    groups = [
        {"name": "numbers", "columns": ["measurement_*"], "scale": "z_score"},
        {"name": "places", "columns": ["place"], "encode": {"vocabulary": {"top_k": slices}}},
    ]
    config = {
        "name": "wide",
        "data": {"path": str(folder / "rows.csv")},
        "features": {"groups": groups, "label": {"column": "bought", "kind": "binary"}},
        "training": {"epochs": 1},
        "evaluation": {"metrics": ["auc", "binary_accuracy"], "slices": ["place"]},
        "output": {"folder": str(folder / "out")},
    }
    file = folder / "wide.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "pipeline", "run", "--config", str(file)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 3):  # 3: not blessed
        raise SystemExit(f"{' '.join(command)} failed")
    return max((folder / "out" / "runs").glob("*/report.html"))


if __name__ == "__main__":
    main()
