"""A temporary Python environment that a command may install into."""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path


def make_environment(folder: Path | None = None) -> Path:
    """Create an environment that sees this environment's packages and stores new installs.

    A Python component of KFP installs its packages before it starts: on a cluster into its
    container, in a replay into this environment, never into the user's environment.

    Args:
        folder: Folder for the environment; None: a folder that is removed when this process ends.

    Returns:
        The path of its Python.
    """
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="tfx-largebatch-python-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    place = folder / "python"
    # This machine's pip is visible from there, and needs no time to install; our images have none.
    has_pip = importlib.util.find_spec("pip") is not None
    venv.create(place, with_pip=not has_pip, symlinks=True)
    programs = place / "bin"
    (packages,) = place.glob("lib/python*/site-packages")
    shared = [sysconfig.get_path("purelib"), *(p for p in sys.path if p.endswith("-packages"))]
    lines = [f"import site; site.addsitedir({each!r})" for each in dict.fromkeys(shared)]
    (packages / "packages_of_this_machine.pth").write_text("\n".join(lines) + "\n")
    for name in ("pip", "pip3"):
        program = programs / name
        program.unlink(missing_ok=True)
        program.write_text('#!/bin/sh\nexec "$(dirname "$0")/python3" -m pip "$@"\n')
        program.chmod(0o755)
    return programs / "python3"
