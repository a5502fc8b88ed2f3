"""Makes .venv what the lock file of this machine's stack says. Run by scripts/setup.sh.

Runs on a bare Python (3.8 and newer, no packages), so that an unsupported one is told what is
supported. It does nothing when .venv is already complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "setup-complete.json"  # written last: without it, an interrupted setup starts over
BUILT_HERE = "pyfarmhash"  # the one pinned package that is compiled: its authors publish no wheel


class Stack(NamedTuple):
    """A lock file and where its wheels run (the newest manylinux tag among them)."""

    name: str
    pythons: list[tuple[int, int]]
    glibc: tuple[int, int]

    @property
    def lock(self) -> Path:
        """Its lock file."""
        return ROOT / "requirements" / f"stack-{self.name}" / "lock.txt"

    def __str__(self) -> str:
        """Says what it needs."""
        first, last = dotted(self.pythons[0]), dotted(self.pythons[-1])
        return f"TFX {self.name} needs Python {first} to {last} and glibc {dotted(self.glibc)}"


# In order of preference.
STACKS = (
    Stack("1.21", pythons=[(3, 11), (3, 12), (3, 13)], glibc=(2, 39)),
    Stack("1.16", pythons=[(3, 10), (3, 11)], glibc=(2, 28)),
)


class SetupError(Exception):
    """What is missing, and the command that brings it: one sentence."""


def main() -> None:
    """Brings `.venv` up to date with the stack that fits this machine."""
    python, glibc = sys.version_info[:2], glibc_version()
    stack = choose_stack(python, glibc)
    if stack is None:
        use_another_python(python, glibc)
    wanted = stamp_for(stack, python)
    if is_complete(wanted):
        return
    # One setup at a time: a second `make` waits for the first one and then has nothing to do.
    with open(__file__, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_complete(wanted):
            return
        refuse_an_incomplete_machine()
        say(f"TFX {stack.name} for Python {dotted(python)} (minutes when it is new here) ...")
        create_venv(wanted)
        install(stack)
        STAMP.write_text(json.dumps(wanted, indent=1))
        say("done.")


def choose_stack(python: tuple[int, int], glibc: tuple[int, int]) -> Stack | None:
    """The first stack that supports this Python and this C library."""
    for stack in STACKS:
        if python in stack.pythons and glibc >= stack.glibc:
            return stack
    return None


def glibc_version() -> tuple[int, int]:
    """What `getconf GNU_LIBC_VERSION` prints, for example (2, 36)."""
    try:
        text = subprocess.check_output(
            ["getconf", "GNU_LIBC_VERSION"], stderr=subprocess.DEVNULL, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        text = ""
    found = re.match(r"glibc (\d+)\.(\d+)", text)
    if not found or os.uname().machine != "x86_64":
        raise SetupError(
            f"TFX publishes wheels for x86_64 Linux with glibc only, which {os.uname().sysname} on"
            f" {os.uname().machine} is not here; run {in_a_container()}."
        )
    return int(found.group(1)), int(found.group(2))


def use_another_python(python: tuple[int, int], glibc: tuple[int, int]) -> NoReturn:
    """Hands over to a supported Python of this machine, or says which one to install."""
    usable = {version for stack in STACKS if glibc >= stack.glibc for version in stack.pythons}
    if not usable:
        raise SetupError(
            f"glibc {dotted(glibc)} is too old ({supported_stacks()}); run {in_a_container()}."
        )
    if not os.environ.get("PYTHON"):
        for version in sorted(usable, reverse=True):
            command = shutil.which(f"python{dotted(version)}")
            if command and runs(command, version):
                os.execv(command, [command, __file__])
    raise SetupError(
        f"Python {dotted(python)} ({sys.executable}) is not supported with glibc {dotted(glibc)}"
        f" ({supported_stacks()}); install Python 3.11, for example with `uv python install 3.11`,"
        " and run `make setup PYTHON=$(uv python find 3.11)`."
    )


def runs(command: str, version: tuple[int, int]) -> bool:
    """Whether the command is a working Python of that version (pyenv's shims may not be)."""
    code = f"import sys; sys.exit(sys.version_info[:2] != {version!r})"
    return subprocess.run([command, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def stamp_for(stack: Stack, python: tuple[int, int]) -> dict[str, str]:
    """Returns what `.venv` depends on: Python, place and locked packages."""
    digest = hashlib.sha256()
    for path in (stack.lock, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes() + b"\0")
    # The root, because scripts in .venv/bin and the editable install name it: a moved checkout
    # needs a new .venv.
    return {"python": dotted(python), "root": str(ROOT), "inputs": digest.hexdigest()}


def read_stamp() -> dict[str, str]:
    """Reads what the last complete setup was of; empty where there was none."""
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def is_complete(wanted: dict[str, str]) -> bool:
    """Whether `.venv` is what the last complete setup made of these inputs."""
    return os.access(str(VENV / "bin" / "python"), os.X_OK) and read_stamp() == wanted


def refuse_an_incomplete_machine() -> None:
    """Raises SetupError naming, all at once, what the system's package manager has to bring."""
    default_python = shutil.which("python3", path="/usr/bin") or ""
    version = dotted(sys.version_info[:2])
    same = default_python and os.path.realpath(default_python).endswith(version)
    python = "python3" if same else f"python{version}"
    missing, debian, redhat = [], [], []
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        missing.append(f"{python}'s venv and ensurepip (for .venv)")
        debian.append(f"{python}-venv")
        redhat.append(python)
    compiler = shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "c++")[0]
    if not compiles(compiler, "#include <string>"):
        missing.append(f"a C++ compiler (to build {BUILT_HERE}, which has no wheel)")
        debian.append("g++")
        redhat.append("gcc-c++")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        missing.append(f"Python.h (to build {BUILT_HERE})")
        debian.append(f"{python}-dev")
        redhat.append(f"{python}-devel")
    if not missing:
        return
    as_root = "" if os.geteuid() == 0 else "sudo "
    if shutil.which("dnf"):
        command = f"{as_root}dnf install -y {' '.join(redhat)}"
    else:
        command = f"{as_root}apt-get update && {as_root}apt-get install -y {' '.join(debian)}"
    raise SetupError(
        f"this machine lacks {', '.join(missing)}; run `{command}`, then `make setup` again."
    )


def compiles(compiler: str, source: str) -> bool:
    """Whether a C++ compiler accepts a source."""
    try:
        command = [compiler, "-x", "c++", "-fsyntax-only", "-"]
        quiet = subprocess.DEVNULL
        done = subprocess.run(command, input=source.encode(), stdout=quiet, stderr=quiet)
    except OSError:
        return False
    return done.returncode == 0


def create_venv(wanted: dict[str, str]) -> None:
    """Leaves a .venv with pip, and without the stamp: the old one when it was once complete."""
    stamp = read_stamp()
    if stamp.get("python") == wanted["python"] and stamp.get("root") == wanted["root"]:
        STAMP.unlink()
        return
    if VENV.exists():
        shutil.rmtree(str(VENV))
    # Inside an environment, sys.executable is that environment's own Python.
    base = getattr(sys, "_base_executable", sys.executable)
    run([base, "-m", "venv", str(VENV)])


def install(stack: Stack) -> None:
    """Exactly the packages of the lock file, byte-compiled, and this project in editable form."""
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    environment = dict(os.environ, **pip_settings_for_uv(pip))
    found = re.search(r"^uv==\S+", stack.lock.read_text(), re.MULTILINE)
    assert found, f"{stack.lock} does not pin uv"
    try:
        run([*pip, "install", "--quiet", "--retries", "2", found.group()])
    except subprocess.CalledProcessError as error:
        refuse_without_network(pip[0], environment)
        say(f"pip cannot install {found.group()} ({last_line(error.stderr)}); going on without uv.")
        install_with_pip(pip, stack)
        return
    uv = [str(VENV / "bin" / "uv"), "pip", "sync", "--python", str(VENV / "bin" / "python")]
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    # Build constraints: what compiles the source distributions is pinned by the lock file too.
    constraint = ["--build-constraint", str(stack.lock)]
    project = VENV / "project.txt"
    project.write_text(f"-e {ROOT}\n")
    try:
        command = [*uv, *quiet, "--compile-bytecode", *constraint, str(stack.lock), str(project)]
        subprocess.run(command, env=environment, check=True)
    except subprocess.CalledProcessError:
        refuse_without_network(pip[0], environment)
        raise not_installed("uv", stack) from None


def install_with_pip(pip: list[str], stack: Stack) -> None:
    """The same packages through pip, where an index has no uv: slower, same result.

    TFX 1.16 declares Python < 3.11 and runs on 3.11: --ignore-requires-python. The lock file is
    complete: --no-deps.
    """
    lines = stack.lock.read_text().splitlines()
    without_uv = VENV / "lock-without-uv.txt"
    without_uv.write_text("\n".join(line for line in lines if not line.startswith("uv==")))
    # Pins the builders too. Relative, because pip splits the variable at spaces.
    environment = dict(os.environ, PIP_CONSTRAINT=str(without_uv.relative_to(ROOT)))
    options = ["--quiet", "--no-deps", "--ignore-requires-python"]
    try:
        command = [*pip, "install", *options, "-r", str(without_uv), "-e", str(ROOT)]
        subprocess.run(command, env=environment, check=True, cwd=str(ROOT))
    except subprocess.CalledProcessError:
        raise not_installed("pip", stack) from None


def not_installed(tool: str, stack: Stack) -> SetupError:
    """Returns the error for a tool that gave up."""
    return SetupError(
        f"{tool} could not install {stack.lock.relative_to(ROOT)} (its reason is above); mend that"
        " and run `make setup` again."
    )


def pip_settings_for_uv(pip: list[str]) -> dict[str, str]:
    """Hands over pip's index and certificates: uv reads none of its settings."""
    listed = subprocess.run([*pip, "config", "list"], stdout=subprocess.PIPE, check=True).stdout
    settings = dict(re.findall(r"^[\w:]+\.([\w-]+)='(.*)'$", listed.decode(), re.MULTILINE))
    names = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
    return {
        name: settings[option]
        for option, name in names.items()
        if option in settings and name not in os.environ
    }


def default_index(python: str) -> str:
    """The package index that pip takes when nobody names another."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, check=True).stdout.decode()


def refuse_without_network(python: str, environment: dict[str, str]) -> None:
    """Raises SetupError when the package index cannot be reached at all."""
    index = environment.get("UV_DEFAULT_INDEX") or default_index(python).strip()
    try:
        urllib.request.urlopen(index, timeout=15).close()
    except urllib.error.HTTPError:
        return  # it answered
    except (OSError, ValueError) as error:
        raise SetupError(
            f"no network: {index} cannot be reached ({getattr(error, 'reason', error)}); connect"
            " this machine, or name a mirror with `PIP_INDEX_URL=https://... make setup`."
        ) from None


def supported_stacks() -> str:
    """Names the stacks and what each needs."""
    return "; ".join(map(str, STACKS))


def in_a_container() -> str:
    """Returns the end of a sentence: how to set up where this machine does not do."""
    image = "python:3.11-bookworm"
    return f'it in a container: `docker run --rm -it -v "$PWD":/src -w /src {image} make setup`'


def run(command: list[str]) -> None:
    """Runs quietly; CalledProcessError carries what the command wrote."""
    pipe = subprocess.PIPE
    subprocess.run(command, stdout=pipe, stderr=pipe, text=True, check=True)


def last_line(text: str) -> str:
    """Returns the last line of what a command wrote."""
    return (text.strip().splitlines() or ["no reason given"])[-1]


def dotted(version: tuple[int, ...]) -> str:
    """Joins the parts of a version."""
    return ".".join(map(str, version))


def say(text: str) -> None:
    """Prints a line at once."""
    print(f"make setup: {text}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"make setup: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"make setup: {shlex.join(error.cmd)} failed: {last_line(error.stderr or '')}")
    except KeyboardInterrupt:
        sys.exit("make setup: interrupted; `make setup` finishes it.")
