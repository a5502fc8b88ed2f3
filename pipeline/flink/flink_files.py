"""The jars of Flink and of Beam's Flink job server: fetched once, by exact version, into a cache.

Flink's come inside the Python package `apache-flink-libraries`, Beam's from Maven Central. Every
jar is compared with its SHA-256 in `flink_jars.sha256` before the folder gets its final name, so a
folder of that name is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

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
        """Flink, and what Beam's tasks need beside it."""
        beam = (jar for jar in sorted(self.beam.glob("*.jar")) if not _is_in_flink(jar.name))
        return ":".join(map(str, [*sorted(self.flink.glob("*.jar")), *beam]))

    @property
    def job_server_class_path(self) -> str:
        """Beam's job server with its Flink client."""
        return f"{self.beam}/*"


def _is_in_flink(name: str) -> bool:
    return name.startswith(("flink-", "slf4j-", "log4j-"))


def cache_folder() -> Path:
    """Where the jars are: below TFX_LARGEBATCH_CACHE, else below the user's cache folder."""
    parent = os.environ.get(CACHE_VARIABLE)
    if not parent:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        parent = f"{home}/tfx-largebatch"
    return Path(parent).expanduser().resolve() / f"flink-{FLINK_VERSION}-beam-{BEAM_VERSION}"


def ensure_files(say: Callable[[str], None] = print) -> FlinkFiles:
    """Fills the cache where it is empty; another process that does so is waited for.

    Args:
        say: called with messages about slow steps.

    Raises:
        ConfigError: Maven is missing, a download failed, or a jar is not the one that it should be.
    """
    folder = cache_folder()
    if folder.is_dir():
        return FlinkFiles(folder)
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(missing_programs("mvn"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f".{folder.name}.lock"):
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
    """Compares every jar with its known SHA-256.

    Raises:
        ConfigError: a jar is missing, differs, or is one too many.
    """
    wanted = {
        name: digest
        for digest, name in (line.split() for line in _CHECKSUMS.read_text().splitlines())
    }
    found = {}
    for folder in (files.flink, files.beam):
        for jar in folder.glob("*.jar"):
            with jar.open("rb") as stream:
                found[str(jar.relative_to(files.folder))] = _sha256(stream)
    if found != wanted:
        wrong = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        raise ConfigError(
            f"{files.folder}: {len(wrong)} of {len(wanted)} jars are not what {_CHECKSUMS.name} "
            f"says, {wrong[0]} for one. Remove the folder and try again; where a mirror serves "
            "other files, use another one."
        )


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def fetch_flink(folder: Path) -> None:
    """Downloads Flink's jars into a folder that is not there yet.

    Raises:
        ConfigError: pip could not.
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
            f"`{' '.join(command)}`). Mend that and try again; nothing half-done is left behind."
        )


def _sha256(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
