"""The jars of Flink and of Beam's Flink job server: fetched once, by exact version, into a cache.

Flink's come inside the Python package `apache-flink-libraries`, Beam's from Maven Central. Every
jar is compared with its SHA-256 in `flink_jars.sha256` before the folder gets its final name, so a
folder of that name is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import portalocker

from pipeline.common.errors import ConfigError
from pipeline.flink.java import missing_programs

FLINK_VERSION = "1.19.3"
BEAM_VERSION = "2.62.0"
CACHE_VARIABLE = "TFX_LARGEBATCH_CACHE"
_HERE = Path(__file__).parent
_CHECKSUMS = _HERE / "flink_jars.sha256"
_PACKAGE = f"apache-flink-libraries=={FLINK_VERSION}"
_PACKAGE_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"
_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class FlinkFiles(NamedTuple):
    """A filled cache folder."""

    folder: Path

    @property
    def flink(self) -> Path:
        """Jars of the Flink distribution."""
        return self.folder / "flink"

    @property
    def beam(self) -> Path:
        """Jars of Beam's Flink job server.

        Beam's job server sends every jar of its class path to Flink with every job, 152 MB
        that a TaskManager then loads again, except what lies in a `gradle/wrapper` folder (Beam's
        PipelineResources.isStageable). Here the cluster has the jars on its own class path.
        """
        return self.folder / "gradle" / "wrapper"

    @property
    def cluster_class_path(self) -> str:
        """Flink's jars, and those that Beam's tasks need in addition."""
        beam = (jar for jar in sorted(self.beam.glob("*.jar")) if not _is_in_flink(jar.name))
        return ":".join(map(str, [*sorted(self.flink.glob("*.jar")), *beam]))

    @property
    def job_server_class_path(self) -> str:
        """Beam's job server with its Flink client."""
        return f"{self.beam}/*"


def _is_in_flink(name: str) -> bool:
    return name.startswith(("flink-", "slf4j-", "log4j-"))


def cache_folder() -> Path:
    """Return the jars' folder: below TFX_LARGEBATCH_CACHE, else below the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    parent = os.environ.get(CACHE_VARIABLE) or f"{home}/tfx-largebatch"
    return Path(parent).expanduser().resolve() / f"flink-{FLINK_VERSION}-beam-{BEAM_VERSION}"


def ensure_files(say: Callable[[str], None] = print) -> FlinkFiles:
    """Fill the cache if it is empty, or wait for another process that fills it.

    Args:
        say: Function that prints messages about slow steps.

    Raises:
        ConfigError: Maven is missing, a download failed, or a jar has another checksum.
    """
    folder = cache_folder()
    if folder.is_dir():
        return FlinkFiles(folder)
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(missing_programs("mvn"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with portalocker.Lock(folder.parent / f".{folder.name}.lock", flags=portalocker.LOCK_EX):
        if folder.is_dir():
            return FlinkFiles(folder)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            files = FlinkFiles(partial)
            say(f"fetching Flink {FLINK_VERSION} (230 MB, once) ...")
            fetch_flink(files.flink)
            say(f"fetching Beam's Flink job server {BEAM_VERSION} (152 MB, once) ...")
            _fetch_beam(files.beam, maven)
            check_files(files)
            partial.chmod(0o755)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return FlinkFiles(folder)


def check_files(files: FlinkFiles) -> None:
    """Compare every jar with its known SHA-256.

    Raises:
        ConfigError: A jar is missing, differs, or is unknown.
    """
    wanted = {name: digest for digest, name in map(str.split, _CHECKSUMS.read_text().splitlines())}
    found = {
        str(jar.relative_to(files.folder)): hashlib.sha256(jar.read_bytes()).hexdigest()
        for folder in (files.flink, files.beam)
        for jar in folder.glob("*.jar")
    }
    if found != wanted:
        wrong = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        raise ConfigError(
            f"{files.folder}: {len(wrong)} of {len(wanted)} jars have another checksum than in "
            f"{_CHECKSUMS.name}, such as {wrong[0]}. Remove the folder and try again; if a mirror "
            "has other files, use another one."
        )


def fetch_flink(folder: Path) -> None:
    """Download Flink's jars into a new folder.

    Raises:
        ConfigError: pip failed.
    """
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        requirements = Path(temporary, "requirements.txt")
        requirements.write_text(f"{_PACKAGE} --hash=sha256:{_PACKAGE_SHA256}\n")
        # Its only form is a source distribution; to name it, pip runs its setup.py.
        options = ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", *options]
        _run([*pip, "--requirement", str(requirements), "--dest", temporary], "pip")
        (archive,) = Path(temporary).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name)
                if name.parts[1:3] == ("deps", "lib") and name.suffix == ".jar":
                    stream = tar.extractfile(member)
                    assert stream is not None
                    with stream, (folder / name.name).open("wb") as target:
                        shutil.copyfileobj(stream, target)


def _fetch_beam(folder: Path, maven: str) -> None:
    folder.mkdir(parents=True)
    goal = [_COPY_DEPENDENCIES, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _run([maven, "--batch-mode", "--quiet", "--file", str(_HERE / "pom.xml"), *goal], "Maven")


def _run(command: Sequence[str], who: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        why = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "")
        raise ConfigError(
            f"{who} could not fetch what Flink needs: {why.strip()} (the command was "
            f"`{' '.join(command)}`). Fix that and try again; no partial download is left."
        )
