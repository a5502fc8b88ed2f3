"""The current paths of artifacts: ML Metadata has their absolute paths when they were written.

In a folder that was moved, renamed or copied, artifacts have the same relative paths, so the last
parts of a path, `<node>/<output>/<execution>`, identify them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """The current output folder, for paths that an earlier run recorded.

    Attributes:
        folder: The output folder.
        owns_metadata: Whether the metadata store is in the folder, and so all its artifacts are. A
            store elsewhere may know artifacts of other folders, which are used where they are.
    """

    folder: Path
    owns_metadata: bool = True

    @classmethod
    def of(cls, folder: str | Path, metadata: Path) -> Places:
        """Return the places of an output folder and its metadata store."""
        return cls(Path(folder), metadata.is_relative_to(folder))

    @property
    def root(self) -> Path:
        """Folder of the artifacts."""
        return self.folder / "artifacts"

    def artifact(self, uri: str) -> str:
        """Return the current path of an artifact; unchanged if it has another form."""
        parts = _split(uri)
        return uri if parts is None else self._present(uri, self.root.joinpath(*parts[1:]))

    def beside(self, path: str, uri: str) -> str:
        """Return the current path of a recorded path in the output folder of the artifact `uri`."""
        parts = _split(uri)
        if parts is None:
            return path
        before = f"{parts[0].rpartition('/')[0]}/"
        if not path.startswith(before):
            return path
        return self._present(path, self.folder / path.removeprefix(before))

    def _present(self, written: str, here: Path) -> str:
        if self.owns_metadata or (here.exists() and not Path(written).exists()):
            return str(here)
        return written


def _split(uri: str) -> list[str] | None:
    """Return `<root>`, node, output and execution of a local artifact's path, or None."""
    parts = uri.rstrip("/").rsplit("/", 3)
    local = len(parts) == 4 and "://" not in uri
    return parts if local and parts[0] and parts[3].isdecimal() else None
