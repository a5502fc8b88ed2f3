"""The pages as a person uses them: they render, sort, filter, open, print, and are accessible."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from pipeline.page.elements import Section, Tile
from pipeline.page.render import SHOWN_ROWS, render
from pipeline.report.tables import Cell, Column, Row, Table, number_cell
from tests.browser.conftest import Pages, show_all

pytestmark = pytest.mark.browser

NAMES = ("run", "failed", "index")


def file_of(pages: Pages, name: str) -> Path:
    return getattr(pages, name)


def texts(page: Page, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_text_contents()]


def serious_faults(page: Page) -> list[tuple[str, str]]:
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"]) for each in serious]


@pytest.mark.parametrize("name", NAMES)
def test_every_section_renders_and_is_accessible(pages: Pages, opened: Callable, name: str) -> None:
    """In both themes; then in a narrow window, which needs no sideways scrolling."""
    with opened(file_of(pages, name), alone=True) as page:
        theme = "document.documentElement.dataset.theme"
        assert page.evaluate(theme) == "light"
        sections = texts(page, "main h2")
        assert sections == texts(page, "nav a[href^='#']")
        assert sections
        show_all(page)
        assert serious_faults(page) == []
        page.emulate_media(color_scheme="dark")
        page.reload()
        assert page.evaluate(theme) == "dark"
        show_all(page)
        assert "cannot be" not in page.inner_text("main")
        assert serious_faults(page) == []
        page.set_viewport_size({"width": 360, "height": 900})
        page.wait_for_function("document.documentElement.scrollWidth <= 360")


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_that_exist(pages: Pages, opened: Callable, name: str) -> None:
    file = file_of(pages, name)
    with opened(file) as page:
        hrefs = page.eval_on_selector_all("a[href]", "all => all.map(a => a.getAttribute('href'))")
        anchors = [href[1:] for href in hrefs if href.startswith("#")]
        assert all(page.locator(f"[id='{anchor}']").count() == 1 for anchor in anchors)
        paths = [unquote(urlsplit(href).path) for href in hrefs if not href.startswith("#")]
        assert paths
        assert [path for path in paths if not (file.parent / path).exists()] == []


def test_a_table_sorts_by_text_and_by_number(pages: Pages, opened: Callable) -> None:
    with opened(pages.run, alone=True) as page:
        table = page.locator("table", has=page.locator("caption", has_text="Nodes")).first
        names = [text.strip() for text in table.locator("tbody th").all_text_contents()]
        head = table.locator("th", has=page.get_by_role("button", name="node", exact=True))
        head.get_by_role("button").press("Enter")  # a click misses it while charts above are drawn
        assert head.get_attribute("aria-sort") == "ascending"
        found = [text.strip() for text in table.locator("tbody th").all_text_contents()]
        assert found == sorted(names)
        seconds = table.get_by_role("button", name="time", exact=True)
        seconds.press("Enter")
        seconds.press("Enter")
        cells = table.locator("tbody td:nth-child(3)")
        values = [float(cell.get_attribute("data-v") or "nan") for cell in cells.all()]
        assert values == sorted(values, reverse=True)
        assert head.get_attribute("aria-sort") is None


def test_filters_and_details(pages: Pages, opened: Callable) -> None:
    with opened(pages.index, alone=True) as page:
        box = page.get_by_label("Filter runs")
        rows = page.locator("#runs tbody tr:not([hidden])")
        assert rows.count() == 2
        box.fill("FAILED")
        assert rows.count() == 1
        assert page.locator("#runs output").inner_text() == "1 runs"
        opener = rows.locator("button.open")
        opener.press("Enter")
        assert opener.get_attribute("aria-expanded") == "true"
        assert "NormalizationValidator: " in page.locator("#runs tr.details").inner_text()
        box.fill("")
        opener.press("Enter")
        assert page.locator("#runs tr.details").count() == 0
        assert rows.count() == 2


def test_the_page_says_what_the_run_found(pages: Pages, opened: Callable) -> None:
    summary = json.loads((pages.run.parent / "summary.json").read_text())
    with opened(pages.run) as page:
        tiles = dict(zip(texts(page, "#verdict dt"), texts(page, "#verdict dd"), strict=True))
        for name, metric in summary["metrics"].items():
            assert tiles[name.replace("_", " ")].startswith(f"{metric['value']:.4f}")
        nodes = texts(page, "#run table:has(caption:text('Nodes')) tbody th")
        assert nodes == [node["name"] for node in summary["nodes"]]
    failed = json.loads((pages.failed.parent / "summary.json").read_text())
    with opened(pages.failed) as page:
        assert failed["run"]["error"]["node"] == "NormalizationValidator"
        assert "NormalizationValidator failed" in page.inner_text("#verdict")


def test_the_numbers_of_a_chart_open_as_a_table(pages: Pages, opened: Callable) -> None:
    with opened(pages.run) as page:
        summary = json.loads((pages.run.parent / "summary.json").read_text())
        chart = page.get_by_role("figure", name="Strongest columns")
        chart.locator("summary").click()
        chart.locator("table").wait_for()
        names = [row.split("\t")[0] for row in chart.locator("tbody tr").all_inner_texts()]
        assert names == [each["column"] for each in summary["attributions"][:10]]


def test_the_theme_switches_and_charts_follow(pages: Pages, opened: Callable) -> None:
    def colours(page: Page) -> set[str]:
        svg = page.locator("#why .plot svg").first.inner_html()
        return set(re.findall(r'fill="(#\w+)"', svg))

    with opened(pages.run, alone=True) as page:
        page.locator("#why .plot").first.scroll_into_view_if_needed()
        page.locator("#why .plot svg").first.wait_for()
        light = colours(page)
        page.get_by_role("button", name="Switch between light and dark").click()
        page.wait_for_function(
            "before => document.querySelector('#why .plot svg')?.innerHTML.includes(before)"
            " === false",
            arg=max(light),
        )
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert not colours(page) & light


def test_it_prints_with_its_charts(pages: Pages, opened: Callable, tmp_path: Path) -> None:
    with opened(pages.run, alone=True) as page:
        page.locator("#why .plot").first.scroll_into_view_if_needed()
        page.locator("#why .plot svg").first.wait_for()
        page.emulate_media(media="print")
        assert not page.locator("nav").is_visible()
        file = tmp_path / "report.pdf"
        page.pdf(path=file)
        assert file.read_bytes().startswith(b"%PDF")


def test_a_long_table_shows_its_first_rows(opened: Callable, tmp_path: Path) -> None:
    rows = [Row([Cell(f"column {i}"), number_cell(i)]) for i in range(450)]
    table = Table("Many", [Column("name"), Column("size", is_number=True)], rows, filter="columns")
    file = tmp_path / "long.html"
    text = render(
        title="long",
        subtitle="",
        badge=Tile("", ""),
        sections=[Section("many", "Many", [table])],
        links={},
    )
    file.write_text(text)
    with opened(file) as page:
        shown = page.locator("tbody tr:not([hidden])")
        assert shown.count() == SHOWN_ROWS == 50
        page.get_by_role("button", name="size").press("Enter")
        page.get_by_role("button", name="size").press("Enter")
        assert shown.count() == SHOWN_ROWS
        assert shown.first.inner_text().split("\t") == ["column 449", "449"]
        box = page.get_by_label("Filter columns")
        box.fill("column 1")
        assert page.locator("output").inner_text() == "111 columns"
        assert shown.count() == SHOWN_ROWS
        box.fill("")
        assert shown.count() == SHOWN_ROWS
        assert shown.last.inner_text().split("\t") == ["column 400", "400"]
        page.get_by_role("button", name="show all").click()
        assert shown.count() == 450
        box.fill("column 44")
        assert shown.count() == 11
