"""`python -m pipeline image build`: write the context and call docker, podman or buildah."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.common import exit_codes
from pipeline.common.errors import ConfigError
from pipeline.image.context import ImageStack, write_context
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


def build_image(
    stack: ImageStack, names: Sequence[str], packages: Sequence[Path], *, target: str, **more: Any
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
