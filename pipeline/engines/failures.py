"""Why a job failed on an engine of several processes: which of them is gone, or lacks what.

What Beam raises then is a gRPC dump, or the Java exception of whoever noticed first.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from pipeline.config.presets import Engine, Flink, JobServerEngine
from pipeline.engines.beam_errors import own_words
from pipeline.engines.reach import unreachable
from pipeline.flink import flink_rest
from pipeline.flink.flink_memory import OPTION, more
from pipeline.flink.flink_state import Cluster, find_cluster

_SECONDS = 5.0
_STOP = "python -m pipeline flink stop"

# Of Beam, around the engine's words: `<job's name>_<uuid>`.
_JOB = re.compile(r"Pipeline (?P<name>\S+)_[0-9a-f-]{36} failed in state \w+: ")
_FRAMES = re.compile(r"^\t(?:at |\.\.\. |Suppressed: ).*\n?", re.MULTILINE)

# Of gRPC and of Java, where the engine asked a worker pool and nobody answered.
_NO_POOL = re.compile(
    r"UNAVAILABLE|UnknownHost|Unable to resolve host|StartWorker|finishConnect|ConnectException"
)

_NO_MORE = (
    "and this machine has no more to give. Use a machine with more memory, Flink on a cluster of "
    "your own, or another engine (beam.engine: in_memory)."
)

# What Flink says -> the setting of a cluster of one's own.
_MEMORY = {
    r"exceeds the maximum size of a sort buffer|Record too large|Too few memory segments"
    r"|Could not allocate \d+ pages|too small memory": "taskmanager.memory.managed.size",
    r"Insufficient number of network buffers": "taskmanager.memory.network.max",
    r"Metaspace": "taskmanager.memory.jvm-metaspace.size",
    r"Direct buffer memory": "taskmanager.memory.task.off-heap.size",
    r"OutOfMemoryError|Java heap space|GC overhead limit": "taskmanager.memory.task.heap.size",
}


class Diagnosis(NamedTuple):
    """What is wrong with an engine.

    Attributes:
        words: who is gone or which option to raise, a sentence or two.
        mend: the command that mends it on this machine; empty where there is none.
    """

    words: str
    mend: str = ""


def diagnose(error: BaseException, engine: Engine) -> Diagnosis | None:
    """Looks at the engine after a job failed there.

    Args:
        error: what Beam raised.
        engine: the `beam:` section.

    Returns:
        What is wrong with the engine; None where the job itself failed.
    """
    if not isinstance(engine, JobServerEngine):
        return None
    if engine.job_endpoint == "embed":  # within this process: only its pool is another
        return _pool(str(error), engine)
    if found := _who_is_gone(engine):
        return found
    for text in map(str, dict.fromkeys((first_error(error, engine), error))):
        if found := _too_little_memory(text, engine) or _pool(text, engine):
            return found
    return None


def words(error: BaseException, engine: Engine) -> str:
    """A failed job's own words: of its first attempt, and of its last where these are others."""
    first = first_error(error, engine)
    if first is error:
        return own_words(error)
    return f"{own_words(first)}\nFlink started the job again. It ended in: {own_words(error)}"


def first_error(error: BaseException, engine: Engine) -> BaseException:
    """What a job failed of first, where Flink started it again and it ended in something else.

    Args:
        error: what Beam raised: of the last attempt.
        engine: the `beam:` section.

    Returns:
        An error in the form of Beam's with the words of the first attempt; `error` itself where
        these are the same, or Flink keeps no other.
    """
    found = _JOB.match(str(error))
    if not (found and isinstance(engine, Flink) and engine.rest):
        return error
    try:
        stack = flink_rest.first_exception(engine.rest, found["name"])
    except flink_rest.FlinkError:
        return error
    innermost = re.split(r"^Caused by: ", stack, flags=re.MULTILINE)[-1]
    first = RuntimeError(found[0] + _FRAMES.sub("", innermost).strip())
    return first if stack and own_words(first) != own_words(error) else error


def ended(cluster: Cluster) -> str:
    """The processes of a cluster of this machine that have ended, and why; or nothing."""
    return " ".join(
        f"{each.name} of the Flink cluster in {cluster.folder} ended: {each.last_line()} "
        f"(log: {each.log})."
        for each in cluster.dead()
    )


def _who_is_gone(engine: JobServerEngine) -> Diagnosis | None:
    cluster = find_cluster(engine.job_endpoint)
    if cluster and (words := ended(cluster)):
        if any(each.name != "worker-pool" for each in cluster.dead()) or (
            engine.environment == "external"
        ):
            mend = cluster.start_command()
            if "OutOfMemory" not in words:
                return Diagnosis(words, mend)
            if size := _more(cluster):
                return Diagnosis(words, f"{mend} {OPTION} {size}")
            return Diagnosis(f"{words} {_has(cluster)}, {_NO_MORE}", mend)
        return None
    if reason := unreachable(engine.job_endpoint, _SECONDS):
        return Diagnosis(
            f"Beam's job server at beam.job_endpoint={engine.job_endpoint} is gone ({reason})."
        )
    if isinstance(engine, Flink) and engine.rest:
        try:
            flink_rest.overview(engine.rest)
        except flink_rest.FlinkError as error:
            return Diagnosis(f"Flink's JobManager at beam.rest={engine.rest} is gone: {error}.")
    return None


def _too_little_memory(text: str, engine: JobServerEngine) -> Diagnosis | None:
    if not isinstance(engine, Flink):
        return None
    for pattern, setting in _MEMORY.items():
        if found := re.search(pattern, text):
            line = next(line for line in text.splitlines() if found[0] in line).strip()
            words = f"Flink has too little memory for these data ({line[-200:]})."
            if cluster := find_cluster(engine.job_endpoint):
                if not (size := _more(cluster)):
                    return Diagnosis(f"{words} {_has(cluster)}, {_NO_MORE}")
                stop = f"{_STOP} --folder {shlex.quote(str(cluster.folder))}"
                mend = f"{stop} && {cluster.start_command()} {OPTION} {size}"
                return Diagnosis(f"{words} {_has(cluster)}: {OPTION} gives it more.", mend)
            return Diagnosis(f"{words} Raise {setting} in its configuration.")
    return None


def _pool(text: str, engine: JobServerEngine) -> Diagnosis | None:
    if engine.environment != "external" or not _NO_POOL.search(text):
        return None
    return Diagnosis(
        f"the engine cannot reach beam.worker_pool={engine.worker_pool}. Start "
        "`python -m pipeline worker-pool` there, beside each of the engine's machines."
    )


def _has(cluster: Cluster) -> str:
    return f"It was started with {cluster.memory_mb:,} MB"


def _more(cluster: Cluster) -> str:
    running = (each.process() for each in cluster.processes)
    return more(cluster.memory_mb, held=sum(each.memory_info().rss for each in running if each))
