"""The commands of README.md's "Install" in a clean environment, and its table of TFX versions.

In CI, Debian 12 with TFX 1.16 here, and Debian 13 with TFX 1.21 in the image of `make test-1.21`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Install\n")[2]
SECTION = SECTION.partition("\n## ")[0]
CREATE, *INSTALLS = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)[0].splitlines()
ROWS = re.findall(r"^\| glibc 2\.(\d+) or newer.*?\| (.*) \|$", SECTION, re.MULTILINE)
CELLS = [
    (int(glibc), python, cell)
    for glibc, cells in ROWS
    for pythons, cell in zip(
        (["3.10"], ["3.11"], ["3.12", "3.13"]), cells.split(" | "), strict=True
    )
    for python in pythons
]
PROGRAM = """
import trainer_module, transform, components, pipeline
for package in (trainer_module, transform, components, pipeline):
    for name in package.__all__:
        getattr(package, name)
import trainer_module.tfx.run, tfx
print(tfx.__version__)
"""
# uv does not read pip's settings.
NAMES = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_CERT": "SSL_CERT_FILE"}
INDEX = {uv: os.environ[pip] for pip, uv in NAMES.items() if pip in os.environ}
ENVIRONMENT = {"UV_SYSTEM_CERTS": "true"} | INDEX | os.environ
pytestmark = pytest.mark.slow


def run(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, **{"env": ENVIRONMENT, "cwd": ROOT, **options}, capture_output=True, text=True
    )
    if done.returncode and "error sending request" in done.stderr.lower():
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    return done


# One machine for each answer, the newest Python: a resolution takes half a minute.
ANSWERS = {cell: (glibc, python, cell) for glibc, python, cell in CELLS}


@pytest.mark.parametrize(("glibc", "python", "cell"), ANSWERS.values())
def test_each_machine_gets_the_tfx_of_the_table(glibc: int, python: str, cell: str):
    done = run(
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header"),
        *("--python-version", python, "--python-platform", f"x86_64-manylinux_2_{glibc}"),
        *("--extra", "tfx", "pyproject.toml"),
    )
    found = re.search(r"^tfx==(1\.\d+)", done.stdout, re.MULTILINE)
    assert (f"TFX {found[1]}" if found else "none: use Python 3.11") == cell
    assert bool(found) == (done.returncode == 0), done.stderr


def test_the_commands_install_what_the_page_says(tmp_path: Path):
    """All of them, with the tested versions; an import of every public name follows."""
    glibc = int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[1])
    fits = glibc >= 39 and sys.version_info >= (3, 11)
    lock = ROOT / "requirements" / f"stack-{'1.21' if fits else '1.16'}" / "lock.txt"
    assert len(INSTALLS) == 3
    script = [
        "set -e",
        f'python3() {{ {sys.executable} "$@"; }}',
        CREATE.replace("my-env", str(tmp_path / "my-env")),
        *(f"{line.partition(' #')[0]} -c {lock.relative_to(ROOT)}" for line in INSTALLS),
        f"cd {tmp_path}",
        f"python -c '{PROGRAM}'",
        "tfx-largebatch --help",
    ]
    done = run("bash", "-c", "\n".join(script))
    assert done.returncode == 0, done.stderr
    assert ("1.21." if fits else "1.16.") in done.stdout
    assert "Usage: " in done.stdout
