"""Take the pictures of docs/runs.md: `python docs/screenshots.py`.

Runs the taxi pipeline twice into a temporary folder, and opens the page of the latest run and that
of all runs in Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).parent / "pictures"
WIDTH = 1100


def main() -> None:
    """Writes every picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: docs/pictures")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as output:
        for epochs in (3, 10):
            run(output, f"training.epochs={epochs}", "explain={rows: 2000}")
        newest = max(Path(output, "runs").glob("*/report.html"))
        with sync_playwright() as playwright:
            program = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for name, file, theme, section, height in (
                ("run-verdict", newest, "light", "verdict", 900),
                ("run-features", newest, "light", "features", 900),
                ("run-evaluation", newest, "dark", "evaluation", 1000),
                ("runs", Path(output, "index.html"), "light", "runs", 1200),
            ):
                page = browser.new_page(
                    viewport={"width": WIDTH, "height": height},
                    color_scheme="dark" if theme == "dark" else "light",
                )
                page.goto(file.as_uri())
                show(page, section)
                page.screenshot(path=folder / f"{name}.png")
                page.close()
            browser.close()


def run(output: str, *settings: str) -> None:
    """Runs the taxi pipeline."""
    command = [sys.executable, "-m", "pipeline", "run", "--config", "examples/taxi/pipeline.yaml"]
    for setting in (f"output.folder={output}", *settings):
        command += ["--set", setting]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode not in (0, 3):  # 3: not blessed
        raise SystemExit(done.returncode)


def show(page: Page, section: str) -> None:
    """Scrolls to a section, opens the details of its first row, and waits for the charts."""
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    if section == "features":
        page.locator("#features button.open").first.click()
    if section in ("verdict", "runs"):
        page.evaluate("scrollTo(0, 0)")
    else:
        page.locator(f"#{section}").scroll_into_view_if_needed()
        page.evaluate(f"document.getElementById('{section}').scrollIntoView()")
    page.wait_for_function(
        """() => [...document.querySelectorAll('.plot')].every(plot => {
            const place = plot.getBoundingClientRect();
            return place.top > innerHeight || place.bottom < 0 || plot.querySelector('svg');
        })"""
    )


if __name__ == "__main__":
    main()
