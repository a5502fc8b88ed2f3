"""What code, comments and requirements cite of the documentation exists.

Links and anchors between the pages are checked by `make docs`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = {
    file: re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    for file in ("docs/design.md", "README.md", "CONTRIBUTING.md")
}


def cited() -> list[tuple[str, str, str]]:
    """(where, which page, which section): `docs/design.md §4.1` and `docs: PAGE.md, "Heading"`."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    found = []
    for name in tracked:
        if not name.endswith((".py", ".toml", ".yaml", ".yml", ".sh", "Makefile")):
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            where = f"{name}:{number}"
            if name != "tests/docs/test_references.py":
                pairs = re.findall(r"([\w/.]+) §(\d[.\d]*)", line)
                pairs += re.findall(r'docs: (\w+\.md), "(.+?)"', line)
                found += [(where, *pair) for pair in pairs]
    return found


def is_there(page: str, section: str) -> bool:
    numbered = re.fullmatch(r"[\d.]+", section)
    headings = HEADINGS.get(page, [])
    if numbered:
        return any(re.match(rf"{re.escape(section.rstrip('.'))}\.? ", h) for h in headings)
    return section in headings


def test_every_section_that_is_cited_exists():
    places = cited()
    assert {"docs/design.md", "CONTRIBUTING.md"} <= {page for _, page, _ in places}
    assert [place for place in places if not is_there(*place[1:])] == []
    assert is_there("docs/design.md", "4.1")
    assert not is_there("docs/design.md", "4.7")
    assert not is_there("README.md", "Supported stacks")


def test_every_page_that_code_names_exists():
    """In messages, descriptions of settings and comments."""
    tracked = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).splitlines()
    named = [
        (name, page)
        for name in tracked
        for page in re.findall(r"docs/[\w-]+\.md", (ROOT / name).read_text(encoding="utf-8"))
    ]
    assert len(named) > 30
    assert [(name, page) for name, page in named if not (ROOT / page).is_file()] == []


def test_the_version_is_that_of_the_newest_release():
    (version,) = re.findall(
        r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    citation = (ROOT / "CITATION.cff").read_text()
    releases = re.findall(
        r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert releases[0][0] == version
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [version]
    assert re.findall(r"^date-released: (.+)$", citation, re.MULTILINE) == [releases[0][1]]
