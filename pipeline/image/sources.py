"""The packages in an image in addition to its dependencies: this one and those of the user."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from pipeline.common.errors import ConfigError

DISTRIBUTION = "tfx-largebatch"
_PACKAGES = ("pipeline", "components", "transform", "trainer_module", "shared_core")
_OF_A_CHECKOUT = ("pyproject.toml", "README.md", "LICENSE", "requirements")
_BUILD_FILES = ("pyproject.toml", "setup.py")
_OUTPUTS = {"build", "dist", "output"}
_ignored = shutil.ignore_patterns(
    *(".git", "__pycache__", ".venv", "venv", ".tox", "node_modules"),
    *("*.pyc", "*.egg-info", "*_cache"),
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
            shutil.copytree(source, target / name, ignore=_ignored)
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
    """Add a package of the user: a wheel unchanged, or the files of a folder that git tracks."""
    if path.is_file():
        shutil.copyfile(path, folder / path.name)
        return
    root = path.resolve()
    target = folder / f"{len(list(folder.iterdir()))}-{root.name}"
    tracked = _tracked(root)
    for name in tracked:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target / name)
    if not tracked:
        shutil.copytree(root, target, ignore=_ignored_of_user(root))


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


def _tracked(root: Path) -> list[Path]:
    """Return the files that git tracks or would add; none outside a repository."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    names = [name for name in done.stdout.decode().split("\0") if name]
    return [Path(name) for name in names if (root / name).is_file()]


def _ignored_of_user(root: Path) -> Callable[[str, list[str]], set[str]]:
    def ignore(folder: str, names: list[str]) -> set[str]:
        # Links to folders may lead to large data or back here; pipes and sockets have no content.
        paths = {name: Path(folder, name) for name in names}
        kept = {n for n, p in paths.items() if p.is_file() or (p.is_dir() and not p.is_symlink())}
        outputs = _OUTPUTS if Path(folder) == root else set()
        return _ignored(folder, names) | (set(names) - kept) | (set(names) & outputs)

    return ignore


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
