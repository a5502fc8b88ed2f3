"""Open each page of build/site in Chromium, from the disk: `make docs` runs this.

On a computer's screen, a telephone's and paper, nothing may be cut at the right edge; a diagram may
scroll there. No page may fetch from another server, and the search must find a setting.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

SITE = Path(__file__).resolve().parents[1] / "build" / "site"
CUT = """[...document.querySelectorAll('.md-content pre > code, .md-content img, .md-content p')]
    .filter(each => each.checkVisibility()
        && !each.closest('.md-typeset__scrollwrap, p:has(> img[src$=".svg"])')
        && (each.getBoundingClientRect().right > innerWidth + 1
            || each.scrollWidth > each.clientWidth + 8))
    .map(each => each.textContent.slice(0, 60) || each.src)"""
VIEWS = {"screen": (1280, "screen"), "telephone": (390, "screen"), "paper": (800, "print")}


def main() -> int:
    """Print what is wrong, and return 1 if anything is."""
    problems, seen = list[str](), list[str]()
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda each: seen.append(each.url))
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        for file in sorted(SITE.rglob("*.html")):
            page.goto(file.as_uri())
            for name, (width, media) in VIEWS.items():
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(media=media)
                problems += [f"{file.name}, {name}: {text!r} is cut" for text in page.evaluate(CUT)]
        problems += search(page)
        browser.close()
    problems += [f"fetched: {url}" for url in seen if not url.startswith(("file:", "data:"))]
    print("\n".join(problems) or f"{SITE}: whole at three widths, offline, and searchable")
    return int(bool(problems))


def search(page: Page) -> list[str]:
    """Search a setting from the start page."""
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((SITE / "index.html").as_uri())
    page.click(".md-search__input")
    page.keyboard.type("clip_per_example")
    page.wait_for_selector(".md-search-result__item", timeout=60_000)
    found = page.query_selector_all(".md-search-result__link")
    links = " ".join(each.get_attribute("href") or "" for each in found)
    return [] if "settings/training.html" in links else [f"the search finds {links}"]


if __name__ == "__main__":
    sys.exit(main())
