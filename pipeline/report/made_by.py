"""What made a run: its command, the versions, the commit of the working directory."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

from pipeline.common.json_types import JsonObject

_PACKAGES = ("tfx-largebatch", "tfx", "tensorflow", "keras", "apache-beam")


def made_by(command: str) -> JsonObject:
    """Return the command, the version of each package, and the Git commit where there is one."""
    found: JsonObject = {"command": command, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit:
        changed = _git("status", "--porcelain", "--untracked-files=no")
        found["git commit"] = commit + (" with changed files" if changed else "")
    return found


def _git(*arguments: str) -> str:
    """Return what Git prints about the working directory; "" outside of a repository."""
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
