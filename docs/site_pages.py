"""What `make docs` adds to this folder's pages: README.md files, settings, the API reference."""

from __future__ import annotations

import functools
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
from settings_pages import PLACES, pages  # noqa: E402 - beside this file

# Path in the repository -> page of the site. Pages of docs/ keep their names.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
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
# Models of settings (and their folder), which GitHub shows -> their pages of the site.
SETTINGS = {
    "pipeline/config/config.py": "settings/index.md",
    "pipeline/config/cluster.py": "settings/cluster.md",
    "pipeline/config/nodes.py": "settings/nodes.md",
    "pipeline/config/evaluation.py": "settings/evaluation.md",
    "trainer_module/config.py": "settings/training.md",
    "trainer_module/options": "settings/training.md",
    "trainer_module/options/run_options.py": "settings/training.md",
    "trainer_module/options/step_options.py": "settings/training.md",
    "trainer_module/options/task_options.py": "settings/training.md",
    "transform/spec/encoders.py": "settings/features.md",
    "transform/spec/features.py": "settings/features.md",
    "transform/spec/group.py": "settings/features.md",
    "components/normalization_validator/limits.py": "settings/normalization.md",
    "components/arrow_example_gen/csv_options.py": "settings/data.md",
}
PACKAGES = ("trainer_module", "transform", "components", "pipeline")

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_GROUP = re.compile(r"# ([A-Z][^.:]*)")
_PUBLIC = re.compile(r"from \.([\w.]+) import (\w+)")
_MEMBER_OPTIONS = (
    "show_root_heading: true, show_root_toc_entry: true, show_root_full_path: false, "
    "heading_level: 2"
)
_CODE = re.compile(r"^( *```.*?^ *```)", re.MULTILINE | re.DOTALL)


@functools.cache
def generated() -> dict[str, str]:
    """Return the text of each page that is no file, by its path."""
    found = dict(pages())
    for package in PACKAGES:
        found |= api_pages(package, (ROOT / package / "__init__.pyi").read_text(encoding="utf-8"))
    return found


def on_config(config: Any) -> Any:
    """Fills `folder/*` of the navigation, and links to the repository that the clone is of."""
    url = ["git", "config", "--get", "remote.origin.url"]
    found = subprocess.run(url, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if match := re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(\.git)?$", found.strip()):
        config.repo_name, config.repo_url = match[1], f"https://github.com/{match[1]}"

    def fill(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: fill(inner) for title, inner in entry.items()}
        if not isinstance(entry, list):
            return entry
        filled = [
            [name for name in generated() if name.startswith(each[:-1]) and name.endswith(".md")]
            if isinstance(each, str) and each.endswith("/*")
            else [fill(each)]
            for each in entry
        ]
        return [each for group in filled for each in group]

    config.nav = fill(config.nav)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not files of docs/."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for page, text in generated().items():
        files.append(File.generated(config, page, content=text))
    return files


def api_pages(package: str, stub: str) -> dict[str, str]:
    """Return a page for each group of a package's public names, and one that lists them.

    A group has a heading in the stub and an example in `api_examples/<package>/`, whose docstring
    introduces the group.

    Args:
        package: Top-level package.
        stub: Text of its `__init__.pyi`: imports, and comments that name the use of those below.
    """
    found = dict[str, str]()
    listed, page = f"# {package}\n\n::: {package}\n    options: {{members: false}}\n", ""
    for line in stub.splitlines():
        if heading := _GROUP.fullmatch(line):
            slug = re.sub(r"\W+", "-", heading[1].lower())
            page = f"api/{package}/{slug}.md"
            file = ROOT / "docs" / "api_examples" / package / f"{slug.replace('-', '_')}.py"
            _, intro, code = file.read_text(encoding="utf-8").split('"""', 2)
            found[page] = f"# {heading[1]}\n\n{intro}\n\n```python\n{code.strip()}\n```\n"
            listed += f"\n## [{heading[1]}]({slug}.md)\n\n"
        elif match := _PUBLIC.match(line):
            name = f"{package}.{match[1]}.{match[2]}"
            place = PLACES.get(match[2])
            members = "members: false, " if place else ""
            found[page] += f"\n::: {name}\n    options: {{{members}{_MEMBER_OPTIONS}}}\n"
            found[page] += f"\n[Its settings](../../settings/{place})\n" if place else ""
            listed += f"- [`{match[2]}`][{name}]\n"
    return {f"api/{package}/index.md": listed, **found}


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turns links between files of the repository into links between pages of the site."""
    here = page.file.src_uri
    if here in generated():
        return markdown
    source = {page_: path for path, page_ in PAGES.items()}.get(here, f"docs/{here}")
    parts = _CODE.split(markdown)
    parts[::2] = [_LINK.sub(lambda match: _link(match, source, here), part) for part in parts[::2]]
    return "".join(parts)


def _link(match: re.Match[str], source: str, here: str) -> str:
    picture, text, target = match.groups()
    if target.startswith("#") or "://" in target:
        return match[0]
    path, hash_, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = (PAGES | SETTINGS).get(path) or (
        path[len("docs/") :] if path.startswith("docs/") else None
    )
    if not (ROOT / path).exists():
        raise PluginError(f"{source}: the link to {target} leads to nothing in the repository.")
    if page is None:  # a source file, which the site does not have
        return text
    target = posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"{picture}[{text}]({target}{hash_}{anchor})"
