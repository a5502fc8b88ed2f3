"""List installed packages as JSON: `python -m pipeline.image.inventory`, run inside an image."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_LONGEST_LICENSE_NAME = 80
"""A longer one is the license's text."""


def inventory() -> dict[str, Any]:
    """Return the installed distributions, Debian's packages and its release."""
    return {
        "distributions": _distributions(),
        "debian": _debian_packages(),
        "release": _release(),
    }


def _distributions() -> list[dict[str, Any]]:
    """Return each distribution once: the first on the path, which Python imports."""
    found: dict[str, metadata.Distribution] = {}
    for each in metadata.distributions():
        found.setdefault(_normalized(each.metadata["Name"]), each)
    return [
        {
            "name": name,
            "version": each.version,
            "license": _license(each),
            "requires": sorted(_required(each) & found.keys()),
        }
        for name, each in sorted(found.items())
    ]


def _required(distribution: metadata.Distribution) -> set[str]:
    """Return the names of a distribution's requirements here, without its extras."""
    from packaging.requirements import InvalidRequirement, Requirement

    names = set()
    for text in distribution.requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:  # packages older than PEP 508 have it
            continue
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            names.add(_normalized(needed.name))
    return names


def _license(distribution: metadata.Distribution) -> dict[str, str] | None:
    """Return the SPDX expression of a distribution, or else the name of its license."""
    fields = distribution.metadata
    for expression in fields.get_all("License-Expression") or ():
        return {"expression": expression}
    name = "".join(fields.get_all("License") or ()).strip()
    if name and len(name) <= _LONGEST_LICENSE_NAME and "\n" not in name and name != "UNKNOWN":
        return {"name": name}
    for classifier in fields.get_all("Classifier") or ():
        if classifier.startswith("License :: "):
            return {"name": classifier.rpartition(" :: ")[2]}
    return None


def _debian_packages() -> list[dict[str, str]]:
    if shutil.which("dpkg-query") is None:
        return []
    fields = ("name", "version", "architecture", "source")
    line = "${Package}\t${Version}\t${Architecture}\t${source:Package}\n"
    done = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={line}"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [dict(zip(fields, line.split("\t"), strict=True)) for line in done.stdout.splitlines()]


def _release() -> dict[str, str]:
    """Return ID and VERSION_ID of the operating system, such as debian and 12."""
    text = Path("/etc/os-release").read_text() if Path("/etc/os-release").is_file() else ""
    found = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', text, re.MULTILINE))
    return {"id": found.get("ID", ""), "version": found.get("VERSION_ID", "")}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    json.dump(inventory(), sys.stdout)
