"""Pages and examples import public names alone, from the top level of the four packages."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("trainer_module", "transform", "components", "pipeline")
FENCE = re.compile(r"^[ >]*(```|~~~)(.*)$")
STATEMENT = re.compile(rf"\b(?:from|import)\s+(?:{'|'.join(PACKAGES)})\b")


def code_of_page(text: str) -> str:
    """All lines within fences, whatever their language: a shell block may hold `python -c`."""
    lines, inside = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        elif inside:
            lines.append(line)
    return "\n".join(lines)


def imported(code: str) -> list[tuple[str, str]]:
    """(module, name) of each import of the four packages in lines of any language."""
    found = [code[match.start() :] for match in STATEMENT.finditer(code)]
    # Each statement alone, lines within brackets joined.
    texts = [re.match(r"[^\n(;\"'`)]*(\([^)]*\))?", text)[0] for text in found]
    pairs = []
    for node in (ast.parse(text).body[0] for text in texts):
        if isinstance(node, ast.ImportFrom):
            pairs += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            pairs += [(alias.name, "") for alias in node.names]
    return [pair for pair in pairs if pair[0].partition(".")[0] in PACKAGES]


def private(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that are no public name of a package."""
    return [
        (module, name)
        for module, name in pairs
        if module not in PACKAGES or (name and name not in importlib.import_module(module).__all__)
    ]


def sources() -> dict[str, str]:
    """Text with code, by file: pages, examples and the packages' own docstrings."""
    pages = [
        *(ROOT.glob("*.md")),
        *(ROOT.glob("docs/*.md")),
        *(page for package in PACKAGES for page in ROOT.glob(f"{package}/**/*.md")),
        *(ROOT.glob("examples/**/*.md")),
    ]
    found = {str(page.relative_to(ROOT)): code_of_page(page.read_text("utf-8")) for page in pages}
    examples = [*ROOT.glob("examples/**/*.py"), *ROOT.glob("docs/api_examples/**/*.py")]
    found |= {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in examples}
    for package in PACKAGES:
        found[package] = importlib.import_module(package).__doc__ or ""
    return {name: code for name, code in found.items() if STATEMENT.search(code)}


def test_pages_and_examples_import_public_names_alone():
    found = {name: imported(code) for name, code in sources().items()}
    assert {"docs/callbacks.md", "transform/README.md"} <= {*found}
    assert sum(map(len, found.values())) > 20
    assert {name: private(pairs) for name, pairs in found.items() if private(pairs)} == {}


@pytest.mark.parametrize(
    "code",
    [
        "from trainer_module.loop.evaluation import Evaluation",
        "from trainer_module import (\n    TrainStep,\n    NoSuchName,\n)",
        "$ python -c 'from transform.preprocessing import FeatureLayout'",
        "cd folder\nimport components.trainer.component as it",
        "def later():\n    from pipeline.graph.build import create_pipeline",
    ],
)
def test_a_private_import_is_found(code):
    assert private(imported(code_of_page(f"Text.\n\n> ```sh\n{code}\n> ```\nimport pipeline.x\n")))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_stub_names_what_the_package_gives(package):
    """Type checkers read the stub, Python the module: the same names, each of them there."""
    module = importlib.import_module(package)
    stub = (ROOT / package / "__init__.pyi").read_text(encoding="ascii")
    names = [
        alias.asname
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    assert sorted(names) == module.__all__ == sorted(set(names))
    assert set(module.__all__) <= set(dir(module))
    for name in names:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError):
        module.no_such_name  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_shows_every_public_name_once(package, site_pages):
    stub = (ROOT / package / "__init__.pyi").read_text(encoding="ascii")
    text = "\n".join(site_pages.api_pages(package, stub).values())
    shown = re.findall(rf"^::: {package}\.\S+?\.(\w+)$", text, re.MULTILINE)
    assert sorted(shown) == importlib.import_module(package).__all__
