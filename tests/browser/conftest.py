"""Chromium, and the pages that it opens: of the taxi run, of a failed one, of all runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import TAXI, run_pipeline
from playwright.sync_api import Browser, Page, sync_playwright


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


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Runs the taxi pipeline, and again with a limit that its features violate."""
    folder = tmp_path_factory.mktemp("taxi") / "out"
    command = ("run", "--config", TAXI, "--set", f"output.folder={folder}")
    whole = run_pipeline(*command, "--set=training.epochs=3", "--set=explain={rows: 200}")
    assert whole.code == 0, whole.output
    limits = ("--set=normalization.z_score.max_abs_mean=0", "--set=normalization.ignore=[]")
    assert run_pipeline(*command, *limits).code == 1
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


@pytest.fixture
def opened(chromium: Browser) -> Callable:
    """Returns a context manager: file -> the open page, which must print and request nothing."""

    @contextmanager
    def open_page(file: Path, *, theme: str = "light", width: int = 1200) -> Iterator[Page]:
        context = chromium.new_context(
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": width, "height": 900},
        )
        page = context.new_page()
        printed: list[str] = []
        requested: list[str] = []
        page.on("console", lambda message: printed.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: printed.append(str(error)))
        page.on("request", lambda request: requested.append(request.url))
        page.goto(file.as_uri())
        yield page
        context.close()
        assert printed == []
        assert [url for url in requested if not url.startswith(("file:", "blob:", "data:"))] == []

    return open_page


def show_all(page: Page) -> None:
    """Opens all groups and the details of the first rows, and draws every chart."""
    page.evaluate("document.querySelectorAll('details.group').forEach(each => each.open = true)")
    for table in page.locator(".table").all():
        for button in table.locator("button.open").all()[:2]:
            button.click()
    for plot in page.locator(".plot").all():
        if plot.is_visible():
            plot.scroll_into_view_if_needed()
            plot.locator("svg").first.wait_for()
