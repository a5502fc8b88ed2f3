"""`image build --sbom FILE`: the contents of an image as a CycloneDX document.

The list comes from the image (`inventory.py`, run inside it), so it includes Debian's packages and
the requirements of the user's packages beyond the lock file. Scanners find known vulnerabilities by
the package URLs.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.common.errors import ConfigError
from pipeline.image.builders import Builder
from pipeline.image.run import Run
from pipeline.image.sources import DISTRIBUTION, version
from shared_core.atomic_files import atomic_write

SPEC_VERSION = "1.5"
_IMAGE = "image"


def check_sbom_path(path: Path) -> None:
    """Check that a document can be written to the path, before a build that takes minutes.

    Raises:
        ConfigError: The path is a folder.
    """
    if path.is_dir():
        raise ConfigError(f"--sbom {path}: a folder; name a file, such as {path / 'sbom.json'}.")


def write_sbom(builder: Builder, image: str, path: Path) -> int:
    """Write the document of an image and return its number of packages.

    Args:
        builder: A tool that has the image.
        image: Name of the image.
        path: The file to write.

    Raises:
        RuntimeError: The image cannot be run; contains its last line of output.
    """
    words = ("python", "-m", "pipeline.image.inventory")
    done = subprocess.run(
        Run(image, words).command_line(builder), capture_output=True, text=True, check=False
    )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise RuntimeError(f"{' '.join(words)} failed in {image}: {last}") from None
    document = sbom(image, found, written=datetime.now(timezone.utc))
    with atomic_write(path) as stream:
        json.dump(document, stream, indent=1)
        stream.write("\n")
    return len(document["components"])


def sbom(image: str, found: Mapping[str, Any], *, written: datetime) -> dict[str, Any]:
    """Return the CycloneDX document of an image.

    Args:
        image: Name of the image, with a tag.
        found: The result of `inventory` inside the image.
        written: The time of the document.
    """
    python = [_python_component(each) for each in found["distributions"]]
    debian = [_debian_component(each, found["release"]) for each in found["debian"]]
    purls = {each["name"]: each["bom-ref"] for each in python}
    components = sorted(python + debian, key=lambda each: each["bom-ref"])
    contents = json.dumps([image, components])
    name, _, tag = image.rpartition(":")
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, contents)}",
        "version": 1,
        "metadata": {
            "timestamp": written.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {
                "components": [{"type": "application", "name": DISTRIBUTION, "version": version()}]
            },
            "component": {"type": "container", "bom-ref": _IMAGE, "name": name, "version": tag},
        },
        "components": components,
        "dependencies": [
            {"ref": _IMAGE, "dependsOn": [each["bom-ref"] for each in components]},
            *(
                {"ref": purls[each["name"]], "dependsOn": [purls[n] for n in each["requires"]]}
                for each in found["distributions"]
            ),
        ],
    }


def _python_component(distribution: Mapping[str, Any]) -> dict[str, Any]:
    name, number = distribution["name"], distribution["version"]
    component = _component(name, number, f"pkg:pypi/{name}@{_quoted(number)}")
    if (known := distribution["license"]) is not None:
        component["licenses"] = [known if "expression" in known else {"license": known}]
    return component


def _debian_component(package: Mapping[str, str], release: Mapping[str, str]) -> dict[str, Any]:
    qualifiers = {
        "arch": package["architecture"],
        "distro": f"{release['id']}-{release['version']}".strip("-"),
        "upstream": package["source"] if package["source"] != package["name"] else "",
    }
    query = "&".join(f"{name}={_quoted(value)}" for name, value in qualifiers.items() if value)
    purl = (
        f"pkg:deb/{release['id'] or 'debian'}/{_quoted(package['name'])}@"
        f"{_quoted(package['version'])}?{query}"
    )
    return _component(package["name"], package["version"], purl)


def _component(name: str, number: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": number, "purl": purl}


def _quoted(text: str) -> str:
    return quote(text, safe=":~")
