"""What `make docs` adds to this folder's pages: README.md files, benchmarks, the API reference."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent

# Path in the repository -> page of the site. Pages of docs/ keep their names.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "transform/README.md": "packages/transform.md",
    "trainer_module/README.md": "packages/trainer_module.md",
    **{
        f"components/{file.parent.name}/README.md": f"packages/{file.parent.name}.md"
        for file in sorted(ROOT.glob("components/*/README.md"))
    },
    "components/transform/README.md": "packages/parquet_transform.md",  # of another `transform`
    **{
        f"benchmarks/results/{file.name}": f"benchmarks/{file.name}"
        for file in sorted(ROOT.glob("benchmarks/results/*.md"))
    },
}
PACKAGES = ("trainer_module", "transform", "components", "pipeline")

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_GROUP = re.compile(r"# ([A-Z][^.:]*)")
_PUBLIC = re.compile(r"from \.([\w.]+) import (\w+)")
_MEMBER_OPTIONS = (
    "{show_root_heading: true, show_root_toc_entry: true, show_root_full_path: false, "
    "heading_level: 3}"
)
_EXAMPLE = re.compile(r"^## ([^\n]+)\n\n(```python\n.*?^```)$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^(```|~~~)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not files of docs/."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for package in PACKAGES:
        stub = (ROOT / package / "__init__.pyi").read_text(encoding="utf-8")
        text = api_page(package, stub)
        files.append(File.generated(config, f"api/{package}.md", content=text))
    return files


def api_page(package: str, stub: str) -> str:
    """Return the page of a package's public names, under the headings that its stub has for them.

    A heading of `templates/api_examples/<package>.md` adds its example below the same heading.

    Args:
        package: Top-level package.
        stub: Text of its `__init__.pyi`: imports, and comments that name the use of those below.
    """
    file = ROOT / "docs" / "templates" / "api_examples" / f"{package}.md"
    examples = dict(_EXAMPLE.findall(file.read_text(encoding="utf-8"))) if file.exists() else {}
    parts = [f"# {package}", f"::: {package}\n    options: {{members: false}}"]
    for line in stub.splitlines():
        if heading := _GROUP.fullmatch(line):
            parts += [f"## {heading[1]}", *filter(None, [examples.get(heading[1])])]
        elif found := _PUBLIC.match(line):
            parts.append(f"::: {package}.{found[1]}.{found[2]}\n    options: {_MEMBER_OPTIONS}")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turns links between files of the repository into links between pages of the site."""
    there = {page_: path for path, page_ in PAGES.items()}
    here = page.file.src_uri
    source = there.get(here, f"docs/{here}")
    lines, in_code = [], False
    for line in markdown.split("\n"):
        if _FENCE.match(line.strip()):
            in_code = not in_code
        lines.append(line if in_code else _LINK.sub(lambda m: _link(m, source, here), line))
    return "\n".join(lines)


def _link(match: re.Match[str], source: str, here: str) -> str:
    picture, text, target = match.groups()
    if target.startswith("#") or "://" in target:
        return match[0]
    path, hash_, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if not (ROOT / path).exists():
        raise PluginError(f"{source}: the link to {target} leads to nothing in the repository.")
    page = PAGES.get(path) or (path[len("docs/") :] if path.startswith("docs/") else None)
    if page is None:  # a source file, which the site does not have
        return text
    target = posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"{picture}[{text}]({target}{hash_}{anchor})"
