"""`image build --sbom`: valid CycloneDX of what is installed, read back by CycloneDX's library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from pipeline.cli.cli import main
from pipeline.common.errors import ConfigError
from pipeline.image.build import build_image
from pipeline.image.sbom import SPEC_VERSION, sbom
from pipeline.image.stacks import STACKS

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "registry.example:5000/team/tfx-largebatch:1.0"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def found() -> dict:
    """Return the inventory of this machine's Python and, on Debian, of its packages."""
    command = [sys.executable, "-m", "pipeline.image.inventory"]
    return json.loads(
        subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    )


def validated(text: str) -> Bom:
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    bom = Bom.from_json(json.loads(text))  # type: ignore[attr-defined]
    assert bom.validate()
    return bom


def test_the_document_is_valid_and_lists_what_is_installed(found):
    assert SPEC_VERSION == "1.5"
    bom = validated(json.dumps(sbom(IMAGE, found, written=NOW)))
    described = bom.metadata.component
    assert described is not None
    assert f"{described.name}:{described.version}" == IMAGE
    purls = {str(each.purl) for each in bom.components}
    for name in ("tensorflow", "apache-beam", "ml-metadata"):
        assert f"pkg:pypi/{name}@{metadata.version(name)}" in purls
    keras = next(each for each in bom.components if each.name == "keras")
    assert [str(each.name or each.id) for each in keras.licenses]  # type: ignore[union-attr]
    needs = {
        str(each.ref): {str(other.ref) for other in each.dependencies} for each in bom.dependencies
    }
    assert f"pkg:pypi/keras@{metadata.version('keras')}" in {
        other
        for ref, others in needs.items()
        if ref.startswith("pkg:pypi/tensorflow@")
        for other in others
    }


def test_debian_packages_have_the_purl_that_scanners_expect():
    package = {
        "name": "libstdc++6",
        "version": "1:12.2.0-14+deb12u1",
        "architecture": "amd64",
        "source": "gcc-12",
    }
    listed = {
        "distributions": [],
        "debian": [package],
        "release": {"id": "debian", "version": "12"},
    }
    document = sbom(IMAGE, listed, written=NOW)
    (component,) = validated(json.dumps(document)).components
    assert document["components"][0]["purl"] == (
        "pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1"
        "?arch=amd64&distro=debian-12&upstream=gcc-12"
    )
    assert component.purl is not None
    assert component.purl.qualifiers == {
        "arch": "amd64",
        "distro": "debian-12",
        "upstream": "gcc-12",
    }
    assert component.version == package["version"]


def test_the_same_contents_have_the_same_serial_number(found):
    one, two = (sbom(IMAGE, found, written=NOW) for _ in range(2))
    assert one == two
    fewer = {**found, "debian": found["debian"][1:], "distributions": []}
    assert sbom(IMAGE, fewer, written=NOW)["serialNumber"] != one["serialNumber"]


def test_a_build_writes_the_sbom_by_running_the_image(tmp_path, monkeypatch):
    """The builder is a program that runs the image's command on this machine."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(
        "#!/bin/sh\n"
        "case $1 in\n"
        '  run) while [ "$1" != python ]; do shift; done; shift\n'
        f'    exec {sys.executable} "$@" ;;\n'
        "esac\n"
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(ROOT)
    file = tmp_path / "new" / "sbom.json"
    assert build_image(STACKS["1.16"], [IMAGE], [], builder="docker", sbom=file) == 0
    bom = validated(file.read_text())
    assert f"pkg:pypi/tfx@{metadata.version('tfx')}" in {str(each.purl) for each in bom.components}


def test_an_image_that_does_not_run_is_an_error(tmp_path, monkeypatch, capsys):
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(
        '#!/bin/sh\n[ "$1" = run ] && { echo "exec format error" >&2; exit 1; }\nexit 0\n'
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(ROOT)
    file = tmp_path / "sbom.json"
    assert build_image(STACKS["1.16"], [IMAGE], [], builder="docker", sbom=file) == 1
    assert "exec format error" in capsys.readouterr().err
    assert not file.exists()


def test_an_sbom_that_cannot_be_written_is_rejected_before_the_build(tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"--sbom .*: a folder; name a file"):
        build_image(STACKS["1.16"], [IMAGE], [], builder="docker", sbom=tmp_path)
    assert main(["image", "build", "--print", "--sbom", str(tmp_path / "a.json")]) == 2
    assert "--print and --output do not build" in capsys.readouterr().err
