"""docker, podman and buildah: find a tool that works here, and run the same commands with each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.common.errors import ConfigError
from pipeline.image.settings import Secrets

Name = Literal["docker", "podman", "buildah"]
NAMES: tuple[Name, ...] = ("docker", "podman", "buildah")
"""In order of preference."""

# Needs neither namespaces nor a daemon, so it works in containers and on CI machines.
CHROOT = "--isolation=chroot"


class Facts(NamedTuple):
    """Size of an image as text with its unit, and its number of layers."""

    size: str
    layers: int


class Builder(NamedTuple):
    """A tool that builds images and runs commands in them."""

    name: Name

    def answer(self) -> str:
        """Return "" if the tool works, else the reason; a client may have no engine."""
        if shutil.which(self.name) is None:
            return "not installed"
        done = subprocess.run(
            [self.name, "info"], capture_output=True, text=True, check=False, timeout=60
        )
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return "" if done.returncode == 0 else (said or ["it gives no reason"])[-1]

    def build(
        self,
        context: Path,
        tags: Sequence[str],
        secrets: Secrets,
        *,
        target: str,
        fresh: bool = False,
    ) -> list[str]:
        """Return the command that builds the `Containerfile` of a folder.

        Args:
            context: The folder.
            tags: Names of the image.
            secrets: Secrets for the commands of the build.
            target: The stage that becomes the image.
            fresh: Whether to ignore layers of earlier builds.
        """
        if self.name == "docker":
            command = ["docker", "build", "--progress=plain"]
        elif self.name == "podman":
            command = ["podman", "build", "--layers", "--force-rm"]
        else:
            command = ["buildah", "bud", CHROOT, "--network=host", "--layers", "--force-rm"]
        if self.name != "docker":
            command.append("--pull=missing" if self.name == "podman" else "--pull=false")
        for name, path in secrets._asdict().items():
            command += [f"--secret=id={name},src={path}"] if path else []
        command += ["--no-cache"] if fresh else []
        command += [f"--target={target}", *(f"--tag={tag}" for tag in tags)]
        return [*command, f"--file={context / 'Containerfile'}", str(context)]

    def has(self, image: str) -> bool:
        """Return whether this tool has the image on this machine."""
        kind = ["inspect", "--type", "image"] if self.name == "buildah" else ["image", "inspect"]
        done = subprocess.run([self.name, *kind, image], capture_output=True, check=False)
        return done.returncode == 0

    def facts(self, image: str) -> Facts:
        """Return the size and the number of layers of an image on this machine."""
        if self.name == "buildah":
            layers = "{{len .OCIv1.RootFS.DiffIDs}}"
            counted = self._output("inspect", "--type", "image", "--format", layers, image)
            size = self._output("images", "--format", "{{.Size}}", image)
            return Facts(size.splitlines()[0].strip(), int(counted))
        text = self._output(
            "image", "inspect", "--format", "{{.Size}} {{len .RootFS.Layers}}", image
        )
        size, layers = text.split()
        return Facts(f"{int(size) / 1e9:.1f} GB", int(layers))

    def environment(self) -> dict[str, str]:
        """Return the environment for the tool's commands."""
        return {**os.environ, "DOCKER_BUILDKIT": "1"}

    def _output(self, *words: str) -> str:
        return subprocess.run(
            [self.name, *words], capture_output=True, text=True, check=True
        ).stdout.strip()


def find_builder(name: str | None = None) -> Builder:
    """Return the named tool, or the first that works.

    Raises:
        ConfigError: The named tool does not work, or none does. Names the command that installs
            one.
    """
    if name is not None:
        builder = Builder(next(each for each in NAMES if each == name))
        if why := builder.answer():
            raise ConfigError(f"--builder {name}: {why}; {_install(name)}")
        return builder
    why = {}
    for each in NAMES:
        why[each] = Builder(each).answer()
        if not why[each]:
            return Builder(each)
    reasons = "; ".join(f"{each}: {reason}" for each, reason in why.items())
    raise ConfigError(f"No tool for images answers here ({reasons}); {_install('buildah')}")


def builder_with(image: str, name: str | None = None) -> Builder:
    """Return the tool that has an image on this machine.

    Raises:
        ConfigError: No tool has the image.
    """
    builders = [Builder(each) for each in NAMES if not Builder(each).answer()]
    builders = [find_builder(name)] if name else builders or [find_builder()]
    for builder in builders:
        if builder.has(image):
            return builder
    names = " and ".join(builder.name for builder in builders)
    raise ConfigError(
        f"--image {image}: {names} {'have' if len(builders) > 1 else 'has'} no image of this name "
        f"on this machine; build it with `python -m pipeline image build --tag {image}`, or get it "
        f"with `{builders[0].name} pull {image}`."
    )


def _install(name: str) -> str:
    as_root = "" if os.geteuid() == 0 else "sudo "
    package = {"docker": "docker.io"}.get(name, name)
    if shutil.which("dnf"):
        package = {"docker.io": "moby-engine"}.get(package, package)
        return f"install it with `{as_root}dnf install -y {package}`."
    return f"install it with `{as_root}apt-get update && {as_root}apt-get install -y {package}`."
