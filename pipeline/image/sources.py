"""The packages in an image in addition to its dependencies: this one and those of the user."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from pipeline.common.errors import ConfigError

DISTRIBUTION = "tfx-largebatch"
_PACKAGES = ("pipeline", "components", "transform", "trainer_module", "shared_core")
_OF_A_CHECKOUT = ("pyproject.toml", "README.md", "LICENSE", "requirements")
_BUILD_FILES = ("pyproject.toml", "setup.py")
_GENERATED = (
    *(".git", "__pycache__", ".venv", "venv", ".tox", "node_modules"),
    *("*.pyc", "*.egg-info", "*_cache"),
)
# Lines of a .dockerignore that stand before a folder's own.
_NOT_COPIED = (*(f"**/{name}" for name in _GENERATED), "build", "dist", "output")
_CREDENTIALS = tuple(
    f"**/{name}"
    for name in (
        *(".env", ".env.*", ".netrc", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd"),
        *(".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh", "kubeconfig"),
        *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.ppk"),
        *("*.p12", "*.pfx", "*.jks", "*.keystore", "*.tfstate", "credentials"),
        *("*credentials*.json", "*credentials*.y*ml", "service[-_]account*.json"),
        *("*secret*.json", "*secret*.y*ml", "*.secret", "*.env"),
    )
)


def add_this_package(folder: Path) -> None:
    """Add this package: the sources of a checkout, or else the installed wheel.

    Args:
        folder: Folder of the packages to build.
    """
    root = _checkout()
    if root is None:
        _pack_installed(metadata.distribution(DISTRIBUTION), folder)
        return
    target = folder / DISTRIBUTION
    target.mkdir(parents=True)
    for name in (*_OF_A_CHECKOUT, *_PACKAGES):
        source = root / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns(*_GENERATED))
        else:
            shutil.copyfile(source, target / name)


def check_packages(given: Sequence[Path]) -> None:
    """Check that the packages can be built.

    Raises:
        ConfigError: A folder is missing or has no build file.
    """
    for path in given:
        if path.is_file() and path.suffix == ".whl":
            continue
        if not path.is_dir():
            raise ConfigError(
                f"--with {path}: no such folder. Name the folder of a Python package, with its "
                "pyproject.toml, or a wheel."
            )
        if not any((path / name).is_file() for name in _BUILD_FILES):
            place = (
                "in the folder above, and name that"
                if (path / "__init__.py").is_file()
                else "there"
            )
            raise ConfigError(
                f"--with {path}: no pyproject.toml or setup.py says how it is built. Write a "
                f"pyproject.toml {place}; three lines are enough: '[project]', "
                f"'name = \"{path.resolve().name}\"', 'version = \"1.0\"'."
            )


def add_package(path: Path, folder: Path) -> None:
    """Add a package of the user: a wheel unchanged, or files of a folder.

    These are the files that git tracks. Of a folder with a `.dockerignore`, or of which git tracks
    no file, they are those that the `.dockerignore` and `_NOT_COPIED` let pass.
    """
    if path.is_file():
        shutil.copyfile(path, folder / path.name)
        return
    root = path.resolve()
    target = folder / f"{len(list(folder.iterdir()))}-{root.name}"
    rules = root / ".dockerignore"
    files = [] if rules.is_file() else _git_files(root, "--cached")
    if files:
        left_out = _git_files(root, "--others", "--exclude-standard")
        why = "git does not track them: `git add` what the image needs"
    else:
        lines = rules.read_text(encoding="utf-8").splitlines() if rules.is_file() else []
        files = list(_let_pass(root, [*_NOT_COPIED, *_CREDENTIALS, *lines]))
        left_out = sorted(set(_let_pass(root, [*_NOT_COPIED, *lines])) - set(files))
        why = "their names are those of credentials: a line `!NAME` in .dockerignore adds one"
    if left_out:
        more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
        shown = ", ".join(map(str, left_out[:5]))
        print(f"--with {path}: left out {shown}{more}, because {why}.", file=sys.stderr)
    for name in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target / name)


def version() -> str:
    """Return this package's version."""
    return metadata.version(DISTRIBUTION)


def digest(folder: Path, files: str = "**/*") -> str:
    """Return a SHA-256 digest of the names and contents of a folder's files."""
    found = hashlib.sha256()
    for path in sorted(each for each in folder.glob(files) if each.is_file()):
        found.update(str(path.relative_to(folder)).encode() + b"\0")
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _checkout() -> Path | None:
    root = Path(__file__).resolve().parents[2]
    is_whole = (root / "requirements").is_dir() and (root / "pyproject.toml").is_file()
    return root if is_whole else None


def _git_files(root: Path, *options: str) -> list[Path]:
    """Return the files below a folder that git lists; none outside a repository."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z", *options], cwd=root, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    names = [name for name in done.stdout.decode().split("\0") if name]
    return [Path(name) for name in names if (root / name).is_file()]


def _let_pass(root: Path, lines: Iterable[str]) -> Iterator[Path]:
    """Yield the files that the lines of a `.dockerignore` let pass; the last that matches decides.

    Links to folders may lead to large data or back here; pipes and sockets have no content.
    """
    stripped = [line.strip() for line in lines]
    rules = [
        (line.startswith("!"), _ignore_pattern(line.removeprefix("!")))
        for line in stripped
        if line and not line.startswith("#")
    ]

    def passes(path: str) -> bool:
        return next((keeps for keeps, rule in reversed(rules) if rule.fullmatch(path)), True)

    has_exceptions = any(keeps for keeps, _ in rules)
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root)
        folders[:] = sorted(f for f in folders if has_exceptions or passes((here / f).as_posix()))
        for path in (here / name for name in sorted(names)):
            if (root / path).is_file() and passes(path.as_posix()):
                yield path


def _ignore_pattern(line: str) -> re.Pattern[str]:
    """Return the pattern of a line of `.dockerignore`, which also covers what is below a folder."""
    forms = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

    def form(found: re.Match[str]) -> str:
        is_class = found[0].startswith("[") and len(found[0]) > 1
        return forms.get(found[0]) or (found[0] if is_class else re.escape(found[0]))

    text = line.strip().removeprefix("./").strip("/")
    return re.compile(re.sub(r"\*\*/?|\[[^]]+\]|.", form, text) + "(?:/.*)?")


def _pack_installed(distribution: metadata.Distribution, folder: Path) -> None:
    """Write the wheel that a package was installed from.

    Raises:
        ConfigError: The package is installed from an incomplete checkout in editable mode.
    """
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        where = unquote(urlparse(origin["url"]).path)
        raise ConfigError(
            f"{DISTRIBUTION} is installed from {where} in editable form and that checkout is not "
            "complete: no requirements/ in it. Install a wheel of it, or clone it again."
        )
    files = [each for each in distribution.files or () if ".." not in each.parts]
    name = f"{DISTRIBUTION.replace('-', '_')}-{distribution.version}-py3-none-any.whl"
    of_the_installer = {"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD"}
    rows = []
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for each in files:
            if each.suffix == ".pyc" or each.name in of_the_installer:
                continue
            wheel.write(str(each.locate()), str(each))
            rows.append(f"{each},,")
        info = next(each.parent for each in files if each.name == "METADATA")
        wheel.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,", ""]))
