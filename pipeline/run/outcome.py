"""How a run ended: its exit code, and the JSON document that `run --json` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from pipeline.common.json_types import JsonObject


class RunOutcome(NamedTuple):
    """The end of a run.

    Attributes:
        code: The exit code: see `pipeline.common.exit_codes.OF_A_RUN`.
        document: The content of `summary.json`, or `{"error": {...}}`.
    """

    code: int
    document: JsonObject

    @classmethod
    def failure(
        cls, code: int, message: str, *, node: str | None = None, log: Path | None = None
    ) -> RunOutcome:
        """Return the end of a run without a summary.

        Args:
            code: The exit code.
            message: What is wrong, and how to fix it.
            node: The node that failed or was interrupted, if one had started.
            log: The log of the run, if it had started.
        """
        error = {
            "message": message,
            "node": node,
            "exit_code": code,
            "log": None if log is None else str(log),
        }
        return cls(code, {"error": error})

    def print_json(self) -> None:
        """Print the document to standard output, in ASCII, whose bytes no encoding changes."""
        print(json.dumps(self.document, indent=1, allow_nan=False))
