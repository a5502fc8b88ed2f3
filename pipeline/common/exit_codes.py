"""The exit codes of the command line and their meaning."""

from __future__ import annotations

DONE = 0
FAILED = 1
WRONG_INPUT = 2
NOT_BLESSED = 3
IN_USE = 4
INTERRUPTED = 130
READER_GONE = 141

OF_A_RUN = {
    DONE: "every node ran, and the model meets every threshold (without any, it is not pushed)",
    FAILED: "a node failed",
    WRONG_INPUT: "the YAML, the data or the arguments are wrong; no node has run",
    NOT_BLESSED: "every node ran, and the model fails a threshold: it is not pushed",
    IN_USE: "another run uses output.folder or metadata.path; no node has run",
    INTERRUPTED: "interrupted; run the same command to continue",
}
"""Exit codes of `run`."""

OF_SUBMIT = {
    DONE: "a run was started; with --wait: all nodes ran, and no threshold failed",
    FAILED: "with --wait: a node failed, the run was stopped, or the platform stopped answering",
    WRONG_INPUT: "the YAML, the arguments, host or credentials are wrong; no run was started",
    NOT_BLESSED: "with --wait: every node ran, and the model fails a threshold (Vertex reports it)",
    INTERRUPTED: "interrupted; a run that was started continues",
}
"""Exit codes of `submit`."""
