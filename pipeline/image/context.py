"""Write the build context: the `Containerfile` next to this module, lock files and packages."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from pipeline.common.errors import ConfigError

# Pinned packages whose authors publish no wheel, so that they take a C++ compiler.
_COMPILED = ("pyfarmhash",)
_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parents[1]
_HAS_CHECKOUT = (_CHECKOUT / "requirements").is_dir() and (_CHECKOUT / "pyproject.toml").is_file()
# In a wheel, pyproject.toml puts the lock files beside this module.
_LOCK_FILES = (_CHECKOUT if _HAS_CHECKOUT else _HERE) / "requirements"
_IGNORED = (_HERE / "default.dockerignore").read_text()
_GENERATED, _CREDENTIALS = (part.splitlines() for part in _IGNORED.split("# Credentials\n"))
_CUDA_PART = re.compile(r"^# \[cuda\n(.*?)^# cuda\]\n", re.MULTILINE | re.DOTALL)
_THIS_PACKAGE = (
    *("pyproject.toml", "README.md", "LICENSE", "requirements"),
    *("pipeline", "components", "transform", "trainer_module", "shared_core"),
)


class ImageStack(NamedTuple):
    """A version of TFX, its default base image, and the Python of that base and of `image.txt`."""

    name: str
    base: str
    python: str

    def lock_file(self, name: str) -> Path:
        """Return `lock.txt` (every pin), `image.txt` (an image's) or `cuda.txt` (a GPU's)."""
        return _LOCK_FILES / f"stack-{self.name}" / name

    def pin(self, package: str) -> str:
        """Return the version of a package in `lock.txt`."""
        text = self.lock_file("lock.txt").read_text()
        (version,) = re.findall(rf"(?m)^{package}==([^\s;]+)", text)
        return version


_STACKS = {
    "1.16": ImageStack("1.16", "docker.io/library/debian:bookworm-slim", "3.11"),
    "1.21": ImageStack("1.21", "docker.io/library/debian:trixie-slim", "3.13"),
}


def stack_named(name: str | None) -> ImageStack:
    """Return the named stack; by default this machine's, so that it runs what is compiled here."""
    name = name or ".".join(metadata.version("tfx").split(".")[:2])
    if name not in _STACKS:
        raise ConfigError(f"--stack {name}: no lock file. Use --stack {' or '.join(_STACKS)}.")
    return _STACKS[name]


def write_context(
    folder: Path, stack: ImageStack, packages: Sequence[Path], *, base: str | None, cuda: bool
) -> None:
    """Write a folder that docker (BuildKit), podman and buildah build without build arguments.

    Args:
        folder: A missing or empty folder.
        stack: Contents of the image.
        packages: Folders or wheels of the user.
        base: Base image; None: the stack's.
        cuda: Whether to install NVIDIA's CUDA libraries.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--output {folder}: it exists and is not empty; name a new folder.")
    for path in packages:
        _check_package(path)
    code = folder / "packages"
    code.mkdir(parents=True)
    if _HAS_CHECKOUT:
        mine = (p for p in _let_pass(_CHECKOUT, _GENERATED) if p.parts[0] in _THIS_PACKAGE)
        _copy(_CHECKOUT, mine, code / "tfx-largebatch")
    elif not any(path.name.startswith("tfx_largebatch-") for path in packages):
        raise ConfigError(
            "tfx-largebatch is not installed from a checkout, so the image needs the file that it "
            "was installed from: add --with tfx_largebatch-VERSION-py3-none-any.whl."
        )
    for path in packages:
        _add_package(path, code)
    shutil.copyfile(stack.lock_file("lock.txt"), folder / "constraints.txt")
    wheels, compiled = _split_dependencies(stack.lock_file("image.txt").read_text(encoding="utf-8"))
    (folder / "dependencies.txt").write_text(wheels)
    (folder / "compiled.txt").write_text(compiled)
    values = {
        "BASE": base or stack.base,
        "BEAM_IMAGE": f"docker.io/apache/beam_python{stack.python}_sdk:{stack.pin('apache-beam')}",
        "STACK": stack.name,
        "PYTHON": stack.python,
        "UV_VERSION": stack.pin("uv"),
        "DEPENDENCIES": _digest(folder, "*.txt"),
        "CODE": _digest(code),
    }
    if cuda:
        shutil.copyfile(stack.lock_file("cuda.txt"), folder / "cuda.txt")
        values["CUDA_DEPENDENCIES"] = _digest(folder, "cuda.txt")
    text = (_HERE / "Containerfile").read_text(encoding="utf-8")
    text = _CUDA_PART.sub(r"\1" if cuda else "", text)
    text = re.sub(r"(?m)^ARG (\w+)$", lambda found: f"{found[0]}={values[found[1]]}", text)
    (folder / "Containerfile").write_text(text)


def _split_dependencies(text: str) -> tuple[str, str]:
    """Return the pins that have wheels, and the pins to compile, both with their hashes."""
    wheels, compiled = [], []
    for entry in re.split(r"^(?=[a-zA-Z0-9])", text, flags=re.MULTILINE):
        (compiled if entry.partition("==")[0] in _COMPILED else wheels).append(entry)
    return "".join(wheels), "".join(compiled)


def _digest(folder: Path, files: str = "**/*") -> str:
    """Return a SHA-256 digest of the names and contents of a folder's files."""
    paths = sorted(path for path in folder.glob(files) if path.is_file())
    each = [(str(p.relative_to(folder)), hashlib.sha256(p.read_bytes()).digest()) for p in paths]
    return hashlib.sha256(repr(each).encode()).hexdigest()


def _check_package(path: Path) -> None:
    if path.is_file() and path.suffix == ".whl":
        return
    if not path.is_dir():
        problem = "no such folder. Name the folder of a Python package, or a wheel."
    elif (path / "pyproject.toml").is_file() or (path / "setup.py").is_file():
        return
    else:
        is_inner = (path / "__init__.py").is_file()
        problem = (
            "no pyproject.toml or setup.py says how it is built. Write a pyproject.toml "
            f"{'in the folder above, and name that' if is_inner else 'there'}; three lines are "
            f"enough: '[project]', 'name = \"{path.resolve().name}\"', 'version = \"1.0\"'."
        )
    raise ConfigError(f"--with {path}: {problem}")


def _add_package(path: Path, folder: Path) -> None:
    """Add a package of the user: a wheel unchanged, or files of a folder.

    These are the files that git tracks. Of a folder with a `.dockerignore`, or of which git tracks
    no file, they are those that `default.dockerignore` and the `.dockerignore` let pass.
    """
    if path.is_file():
        shutil.copyfile(path, folder / path.name)
        return
    root = path.resolve()
    rules = root / ".dockerignore"
    files = [] if rules.is_file() else _git_files(root, "--cached")
    if files:
        left_out = _git_files(root, "--others", "--exclude-standard")
        why = "git does not track them: `git add` what the image needs"
    else:
        lines = rules.read_text(encoding="utf-8").splitlines() if rules.is_file() else []
        files = list(_let_pass(root, [*_GENERATED, *_CREDENTIALS, *lines]))
        left_out = sorted(set(_let_pass(root, [*_GENERATED, *lines])) - set(files))
        why = "their names are those of credentials: a line `!NAME` in .dockerignore adds one"
    if left_out:
        more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
        shown = ", ".join(map(str, left_out[:5]))
        print(f"--with {path}: left out {shown}{more}, because {why}.", file=sys.stderr)
    _copy(root, files, folder / f"{len(list(folder.iterdir()))}-{root.name}")


def _copy(root: Path, files: Iterable[Path], target: Path) -> None:
    for name in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target / name)


def _git_files(root: Path, *options: str) -> list[Path]:
    """Return the files below a folder that git lists; none outside a repository."""
    command = ["git", "ls-files", "-z", *options]
    if shutil.which("git") is None:
        return []
    names = subprocess.run(command, cwd=root, capture_output=True).stdout.decode().split("\0")
    return [Path(name) for name in names if (root / name).is_file()]


def _let_pass(root: Path, lines: Iterable[str]) -> Iterator[Path]:
    """Yield the files that the lines of a `.dockerignore` let pass; the last that matches decides.

    Links to folders may lead to large data or back here; pipes and sockets have no content.
    """
    rules = [
        (line.startswith("!"), _ignore_pattern(line.removeprefix("!")))
        for line in map(str.strip, lines)
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

    def form(part: re.Match[str]) -> str:
        is_class = part[0].startswith("[") and len(part[0]) > 1
        return forms.get(part[0]) or (part[0] if is_class else re.escape(part[0]))

    text = line.strip().removeprefix("./").strip("/")
    return re.compile(re.sub(r"\*\*/?|\[[^]]+\]|.", form, text) + "(?:/.*)?")
