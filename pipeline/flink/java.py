"""The Java and the Maven of this machine, or the command that installs them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from pipeline.common.errors import ConfigError

JAVA_VERSIONS = range(11, 22)
"""Flink 1.19 runs on Java 8, 11, 17 and 21 (its own documentation); 17 is the one tried here."""


def find_java() -> str:
    """The Java to run Flink with: JAVA_HOME's, else the one on PATH.

    Raises:
        ConfigError: there is none, or it is too old or too new.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise ConfigError(missing_programs("java"))
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    version = int(found.group(1)) if found else 0
    if version not in JAVA_VERSIONS:
        raise ConfigError(
            f"{java} is Java {version or said.strip()!r}: Flink needs Java {JAVA_VERSIONS[0]} to "
            f"{JAVA_VERSIONS[-1]}. Run `{_install('java')}`, or set JAVA_HOME to one."
        )
    return java


def missing_programs(program: str) -> str:
    """What to install, naming both packages when both are missing."""
    missing = [name for name in ("java", "mvn") if name == program or shutil.which(name) is None]
    are = "is" if len(missing) == 1 else "are"
    return (
        f"Flink on this machine needs {' and '.join(missing)}, which {are} not there. "
        f"Run `{_install(*missing)}`."
    )


def _install(*programs: str) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    if shutil.which("dnf"):
        packages = {"java": "java-17-openjdk-headless", "mvn": "maven"}
        return f"{sudo}dnf install -y {' '.join(packages[p] for p in programs)}"
    java = "openjdk-17-jre-headless" if _debian_version() < 13 else "openjdk-21-jre-headless"
    packages = {"java": java, "mvn": "maven"}
    names = " ".join(packages[program] for program in programs)
    return f"{sudo}apt-get update && {sudo}apt-get install -y {names}"


def _debian_version() -> int:
    """13 for Debian 13, which has no Java 17; 0 where it is unknown."""
    with contextlib.suppress(OSError):
        text = Path("/etc/os-release").read_text(encoding="utf-8")
        found = re.search(r"^ID=debian$", text, re.MULTILINE) and re.search(
            r'^VERSION_ID="?(\d+)', text, re.MULTILINE
        )
        return int(found.group(1)) if found else 0
    return 0
