"""docker, podman and buildah: find one that works here, and run the same commands with each."""

from __future__ import annotations

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


class Builder(NamedTuple):
    """A tool that builds images and runs commands in them."""

    name: Name

    def problem(self) -> str:
        """Return why the tool does not work, "" if it does; a client may have no engine."""
        if shutil.which(self.name) is None:
            return "not installed"
        done = subprocess.run(
            [self.name, "info"], capture_output=True, text=True, check=False, timeout=60
        )
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return "" if done.returncode == 0 else (lines or ["it gives no reason"])[-1]

    def build(
        self,
        context: Path,
        tags: Sequence[str],
        secrets: Secrets,
        *,
        target: str,
        fresh: bool = False,
        verbose: bool = False,
    ) -> list[str]:
        """Return the command that builds the `Containerfile` of a folder.

        Args:
            context: The folder.
            tags: Names of the image.
            secrets: Secrets for the commands of the build.
            target: The stage that becomes the image.
            fresh: Whether to ignore layers of earlier builds.
            verbose: Whether docker prints every line; podman and buildah always do.
        """
        command = {
            "docker": ["docker", "build", f"--progress={'plain' if verbose else 'auto'}"],
            "podman": ["podman", "build", "--layers", "--force-rm", "--pull=missing"],
            "buildah": [
                *("buildah", "bud", CHROOT, "--network=host"),
                *("--layers", "--force-rm", "--pull=false"),
            ],
        }[self.name]
        for name, path in secrets._asdict().items():
            command += [f"--secret=id={name},src={path}"] if path else []
        command += ["--no-cache"] if fresh else []
        command += [f"--target={target}", *(f"--tag={tag}" for tag in tags)]
        return [*command, f"--file={context / 'Containerfile'}", str(context)]

    def inspect(self, image: str, *, timeout: float = 60.0) -> bytes | None:
        """Return what the tool knows about an image on this machine, as JSON.

        Args:
            image: Name of the image. It is not pulled.
            timeout: Time limit in seconds.

        Returns:
            The JSON text; None if the tool does not have the image, is broken or not installed, or
            exceeds the time limit.
        """
        kind = ["inspect", "--type", "image"] if self.name == "buildah" else ["image", "inspect"]
        try:
            return subprocess.run(
                [self.name, *kind, image],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=timeout,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return None


def find_builder(name: str | None = None) -> Builder:
    """Return the named tool, or the first that works.

    Raises:
        ConfigError: The named tool does not work, or none does.
    """
    problems = {}
    for each in NAMES:
        if name in (None, each):
            problems[each] = Builder(each).problem()
            if not problems[each]:
                return Builder(each)
    reasons = "; ".join(f"{each}: {problem}" for each, problem in problems.items())
    package = {"docker": "docker.io"}.get(name or "", name or "buildah")
    raise ConfigError(
        f"{f'--builder {name}' if name else 'No tool builds images here'} ({reasons}). Start its "
        f"daemon, or install it as root: `apt-get update && apt-get install -y {package}`."
    )


def builder_with(image: str, name: str | None = None) -> Builder:
    """Return the tool that has an image on this machine.

    Raises:
        ConfigError: No tool has the image.
    """
    working = [Builder(each) for each in NAMES if not name and not Builder(each).problem()]
    builders = working or [find_builder(name)]
    for builder in builders:
        if builder.inspect(image) is not None:
            return builder
    names = ", ".join(builder.name for builder in builders)
    raise ConfigError(
        f"--image {image}: no image of this name on this machine ({names}). Build it with "
        f"`python -m pipeline image build --tag {image}`, or get it with `{builders[0].name} pull "
        f"{image}`."
    )
