"""A runner of a replay that runs commands inside an image, so that the replay tests the image."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipeline.image.builders import builder_with
from pipeline.image.run import Run
from pipeline.replay.node_command import NodeCommand, Process, Runner, on_this_machine
from pipeline.replay.node_environment import NO_CREDENTIALS, Credentials
from trainer_module.devices.gpu_check import REPLAY


def runner_in_image(
    image: str,
    *,
    builder: str | None,
    root: Path,
    mapped: Iterable[str] = (),
    credentials: Credentials = NO_CREDENTIALS,
) -> Runner:
    """Return the runner that starts each node's command in a separate container.

    Args:
        image: Name of the image; "": the image of each node.
        builder: docker, podman or buildah; None: the one that has the image.
        root: Folder that nodes write to.
        mapped: Folders that nodes only read.
        credentials: Credentials whose files are mounted too; the command has their variables.

    Raises:
        ConfigError: No tool has the image.
    """
    files = [str(path) for path in credentials.files]
    tool = builder_with(image, builder) if image else None

    def run_in(command: NodeCommand) -> Process:
        name = image or command.image
        run = Run(
            name,
            command.words,
            write=[str(root)],
            read=[p for p in (*mapped, *files) if not Path(p).is_relative_to(root)],
            env={REPLAY: "1", **command.env},
        )
        # For the tool that starts the container, so that it finds this package.
        environment = on_this_machine(command._replace(words=("python",), pod=None)).env
        return Process(run.command_line(tool or builder_with(name, builder)), environment)

    return run_in
