"""Chromium, and the pages that it opens: of the taxi run, of a failed one, of all runs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import TAXI, run_command
from playwright.sync_api import Browser, Page, sync_playwright

DRAWN = """[...document.querySelectorAll('.plot')].every(plot => !plot.checkVisibility()
    || plot.querySelector('svg') || plot.textContent)"""
"""In JavaScript: every chart that is not in a closed group has its drawing, or says why not."""


class Pages(NamedTuple):
    """Files of pages.

    Attributes:
        run: of a whole run.
        failed: of a run that a node ended.
        index: of all runs.
    """

    run: Path
    failed: Path
    index: Path


RUNS = """
import json, sys
from pipeline.__main__ import main
print("exit codes:", [main(arguments) for arguments in json.loads(sys.argv[1])])
"""


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Runs the taxi pipeline, and again with a limit that its features violate.

    Both in one process, which imports TensorFlow and TFX once.
    """
    folder = tmp_path_factory.mktemp("taxi") / "out"
    command = ["run", "--config", str(TAXI), "--set", f"output.folder={folder}"]
    whole = ["--set=training.epochs=3", "--set=explain={rows: 200}"]
    limits = ["--set=normalization.z_score.max_abs_mean=0", "--set=normalization.ignore=[]"]
    runs = json.dumps([[*command, *whole], [*command, *limits]])
    done = run_command(sys.executable, "-c", RUNS, runs)
    assert done.lines("exit codes: [0, 1]"), done.output
    run, failed = sorted(folder.glob("runs/*/report.html"))
    return Pages(run, failed, folder / "index.html")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "Chromium is missing: `make test-browser` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox"],  # of root
        )
        yield browser
        browser.close()


class Window:
    """A page of the browser, which must print and request nothing."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.on("console", lambda each: self.problems.append(f"{each.type}: {each.text}"))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda each: self._look_at(each.url))

    def _look_at(self, url: str) -> None:
        if not url.startswith(("file:", "blob:", "data:")):
            self.problems.append(url)


@pytest.fixture(scope="session")
def opened(chromium: Browser) -> Iterator[Callable]:
    """Returns a context manager: file -> its page, which stays open for the tests that read it.

    A test that changes what another one reads asks for a page `alone`.
    """
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    windows: dict[Path, Window] = {}

    @contextmanager
    def open_page(file: Path, *, alone: bool = False) -> Iterator[Page]:
        window = None if alone else windows.get(file)
        if window is None:
            window = Window(context.new_page())
            window.page.goto(file.as_uri())
            if not alone:
                windows[file] = window
        try:
            yield window.page
        finally:
            if alone:
                window.page.evaluate("localStorage.clear()")
                window.page.close()
        assert window.problems == []

    yield open_page
    context.close()


def show_all(page: Page) -> None:
    """Opens all groups and the details of the first rows, and draws every chart."""
    page.evaluate(
        """() => {
            document.querySelectorAll('details.group').forEach(each => { each.open = true; });
            document.querySelectorAll('.table').forEach(table => {
                [...table.querySelectorAll('button.open[aria-expanded=false]')].slice(0, 2)
                    .forEach(button => button.click());
            });
        }"""
    )
    page.wait_for_function(
        "document.querySelectorAll('tr.details').length"
        " === document.querySelectorAll('button.open[aria-expanded=true]').length"
    )
    # beforeprint draws what has not come into view.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function(DRAWN)
