"""`python -m pipeline image build`: write the context and call docker, podman or buildah."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.targets.field_checks import IMAGE
from trainer_module.devices.local_cluster import describe_end

# In order of preference. buildah's chroot needs no namespaces and no daemon, as on CI machines.
_BUILDERS = {
    "buildah": "bud --layers --pull=false --isolation=chroot --network=host",
    "podman": "build --layers --pull=missing",
    "docker": "build",
}
# Variables of this machine that the commands of a build see.
_PASSED_ON = re.compile(
    r"(PIP|UV)_\w*(INDEX|HOST|TIMEOUT|SYSTEM_CERTS)\w*|(HTTPS?|NO)_PROXY|(https?|no)_proxy"
)
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
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


def build_image(
    stack: _ImageStack, names: Sequence[str], packages: Sequence[Path], *, target: str, **more: Any
) -> int:
    """Build the stage `target` as an image, with the first builder that works.

    The other arguments are those of `write_context`. The builder prints its progress.

    Returns:
        The exit code.

    Raises:
        ConfigError: A name or a folder is invalid, or no builder works; nothing was built.
    """
    if invalid := [name for name in names if "@" in name or not IMAGE.fullmatch(name)]:
        raise ConfigError(
            f"The image name {invalid[0]!r} is not valid. Use lowercase letters and digits, with "
            ". _ - between them, and one :tag, as in registry.example/my-pipeline:1.0; set it by "
            "--tag or cluster.<target>.image."
        )
    tool = _find_builder()
    with tempfile.TemporaryDirectory(prefix="tfx-largebatch-image-") as folder:
        context = Path(folder, "context")
        write_context(context, stack, packages, **more)
        command = _build_command(tool, context, names, write_secrets(Path(folder)), target=target)
        print(f"TFX {stack.name} with {tool}: {', '.join(names)}", flush=True)
        code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    if code:
        print(f"{tool} {describe_end(code)}: see its output above.", file=sys.stderr)
        return exit_codes.FAILED
    print("\nNext:", *(f"{tool} push {name}" for name in names), sep="\n  ")
    return exit_codes.DONE


def _find_builder() -> str:
    """Return the first builder that works; a client may have no engine."""
    problems = []
    for tool in _BUILDERS:
        if shutil.which(tool) is None:
            problems.append(f"{tool}: not installed")
            continue
        done = subprocess.run([tool, "info"], capture_output=True, text=True)
        if done.returncode == 0:
            return tool
        problems.append(f"{tool}: " + (done.stderr or done.stdout).strip().rpartition("\n")[2])
    raise ConfigError(
        f"No tool builds images here ({'; '.join(problems)}). Start a daemon, or install a tool as "
        "root: `apt-get update && apt-get install -y buildah`."
    )


def _build_command(
    tool: str, context: Path, names: Sequence[str], secrets: Mapping[str, Path], *, target: str
) -> list[str]:
    """Return the command that builds the `Containerfile` of a folder."""
    options = [f"--secret=id={name},src={path}" for name, path in secrets.items()]
    options += [f"--target={target}", *(f"--tag={name}" for name in names)]
    return [
        tool,
        *_BUILDERS[tool].split(),
        *options,
        f"--file={context / 'Containerfile'}",
        str(context),
    ]


def write_secrets(folder: Path) -> dict[str, Path]:
    """Return the secrets of a build: how this machine reaches package indexes, perhaps by password.

    They are in no layer: `settings`, a new file of `export` lines that only the current user reads,
    and `certificates`.
    """
    # The settings in pip's files; uv reads none of them.
    command = [sys.executable, "-m", "pip", "config", "list"]
    pip = subprocess.run(command, capture_output=True, text=True).stdout
    configured = dict(re.findall(r"^[\w:]+\.([\w-]+)='(.*)'$", pip, re.MULTILINE))
    variables = {name: v for name, v in os.environ.items() if v and _PASSED_ON.fullmatch(name)}
    for option, pip_name, uv_name in (
        ("index-url", "PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"),
    ):
        if address := variables.get(pip_name) or configured.get(option):
            variables = {pip_name: address, uv_name: address} | variables
    secrets = {}
    paths = [*map(os.environ.get, _CERTIFICATES), configured.get("cert")]
    if found := next((Path(path) for path in paths if path and Path(path).is_file()), None):
        secrets["certificates"] = found
        variables |= dict.fromkeys(_CERTIFICATES, "/run/secrets/certificates")
    if variables:
        secrets["settings"] = folder / "settings"
        secrets["settings"].touch(mode=0o600)
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
        secrets["settings"].write_text("".join(lines))
    return secrets


class _ImageStack(NamedTuple):
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
    "1.16": _ImageStack("1.16", "docker.io/library/debian:bookworm-slim", "3.11"),
    "1.21": _ImageStack("1.21", "docker.io/library/debian:trixie-slim", "3.13"),
}


def stack_named(name: str | None) -> _ImageStack:
    """Return the named stack; by default this machine's, so that it runs what is compiled here."""
    name = name or ".".join(metadata.version("tfx").split(".")[:2])
    if name not in _STACKS:
        raise ConfigError(f"--stack {name}: no lock file. Use --stack {' or '.join(_STACKS)}.")
    return _STACKS[name]


def write_context(
    folder: Path, stack: _ImageStack, packages: Sequence[Path], *, base: str | None, cuda: bool
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
    """Add a package of the user: a wheel, or the files of a folder that git tracks.

    Of a folder of which git tracks no file, these are the files that `default.dockerignore` passes.
    """
    if path.is_file():
        shutil.copyfile(path, folder / path.name)
        return
    root = path.resolve()
    if files := _git_files(root, "--cached"):
        left_out = _git_files(root, "--others", "--exclude-standard")
        why = "git does not track them: `git add` what the image needs"
    else:
        files = list(_let_pass(root, [*_GENERATED, *_CREDENTIALS]))
        left_out = sorted(set(_let_pass(root, _GENERATED)) - set(files))
        why = "their names are those of credentials: `git add` what the image needs"
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


def _let_pass(root: Path, rules: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that no rule leaves out: `**/NAME`, or `NAME` at the top.

    Links to folders may lead to large data or back here; pipes and sockets have no content.
    """
    names = [line.removeprefix("**/") for line in rules if line.startswith("**/")]
    at_top = [line for line in rules if line and line[0] not in "#*"]

    def passes(path: Path) -> bool:
        patterns = names if len(path.parts) > 1 else [*names, *at_top]
        return not any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns)

    for folder, folders, files in os.walk(root):
        here = Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if passes(here / name))
        for path in (here / name for name in sorted(files)):
            if (root / path).is_file() and passes(path):
                yield path
