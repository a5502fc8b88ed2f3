"""The Java and the Maven of this machine, or the command that installs them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess

from pipeline.common.errors import ConfigError

JAVA_VERSIONS = range(11, 22)
"""Flink 1.19 runs on Java 8, 11, 17 and 21 (its own documentation); 17 is the one tried here."""


def find_java() -> str:
    """Return the Java to run Flink with: JAVA_HOME's, else the one on PATH.

    Raises:
        ConfigError: There is none, or it is too old or too new.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise ConfigError(missing_programs("java"))
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    version = int(found.group(1)) if found else 0
    if version not in JAVA_VERSIONS:
        raise ConfigError(
            f"{java} is Java {version or printed.strip()!r}: Flink needs Java "
            f"{JAVA_VERSIONS[0]} to {JAVA_VERSIONS[-1]}. Run "
            f"`{_install('java')}`, or set JAVA_HOME to one."
        )
    return java


def missing_programs(program: str) -> str:
    """Return a message that names the packages to install: both if both are missing."""
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
    """Return 13 for Debian 13, which has no Java 17; 0 on another system."""
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
        return int(release.get("VERSION_ID", 0)) if release["ID"] == "debian" else 0
    return 0
