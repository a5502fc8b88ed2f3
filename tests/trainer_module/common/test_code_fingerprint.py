"""Which edits of the user's own code count, and that none of it is run to know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainer_module.common.code_fingerprint import code_digests

SOURCES = {
    "fp_models/__init__.py": "",
    "fp_models/wide.py": "from .parts import head\nfrom fp_shared import *\nimport numpy as np\n"
    "def model_fn(context):\n    from fp_late import sizes\n    return head(sizes)\n",
    "fp_models/parts/__init__.py": "from . import layers\nfrom ..names import NAME\nhead = 1\n",
    "fp_models/parts/layers.py": "WIDTH = 8\n",
    "fp_models/names.py": "NAME = 'wide'\n",
    "fp_models/other.py": "raise SystemExit('not imported by the model')\n",
    "fp_shared.py": "import fp_models.wide  # a circle\nraise SystemExit('nothing is run')\n",
    "fp_late.py": "sizes = 3\n",
}
BEHIND = {
    "fp_models",
    "fp_models.wide",
    "fp_models.parts",
    "fp_models.parts.layers",
    "fp_models.names",
    "fp_shared",
    "fp_late",
}


@pytest.fixture
def sources(tmp_path, monkeypatch) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_digest_covers_the_module_and_its_own_imports(sources):
    assert set(code_digests(["fp_models.wide"])) == BEHIND
    assert set(code_digests(["fp_models.wide"], without=["fp_models"])) == set()
    assert not any(name.startswith("fp_") for name in sys.modules)


def test_an_edit_changes_that_module_alone(sources):
    for file in ["fp_models/wide.py", "fp_models/parts/layers.py", "fp_late.py"]:
        before = code_digests(["fp_models.wide"])
        text = (sources / file).read_text()
        (sources / file).write_text(
            text.replace("3", "4").replace("8", "9").replace("head(", "max(")
        )
        after = code_digests(["fp_models.wide"])
        assert [name for name in after if after[name] != before[name]] == [
            file.removesuffix(".py").replace("/", ".")
        ]


def test_an_installed_package_counts_by_what_its_given_module_imports(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "fp_installed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("import numpy\nfrom . import data\n")
    (package / "data.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(package.parent))
    before = code_digests(["fp_installed.a"])
    assert set(before) == {"fp_installed", "fp_installed.a", "fp_installed.data"}
    (package / "data.py").write_text("x = 2\n")
    assert code_digests(["fp_installed.a"]) != before


def test_missing_module_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"no module 'fp_nowhere.at_all': install its"):
        code_digests(["fp_nowhere.at_all"])
