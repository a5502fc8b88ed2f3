"""What a Flink cluster says about itself: versions, slots, jobs and TaskManagers over REST."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 5.0


class FlinkError(Exception):
    """Nobody answers, or not as Flink does."""


class Overview(NamedTuple):
    """The cluster as a whole."""

    version: str
    task_managers: int
    slots: int
    free_slots: int
    running: int
    finished: int
    failed: int
    cancelled: int


class TaskManager(NamedTuple):
    """One TaskManager."""

    id: str
    host: str
    slots: int
    free_slots: int


def overview(address: str) -> Overview:
    """Asks for versions, slots and jobs.

    Args:
        address: `host:port` of the REST endpoint.

    Raises:
        FlinkError: nobody answers within 5 seconds, or not as Flink does.
    """
    answer = ask(address, "overview")
    try:
        return Overview(
            version=answer["flink-version"],
            task_managers=answer["taskmanagers"],
            slots=answer["slots-total"],
            free_slots=answer["slots-available"],
            running=answer["jobs-running"],
            finished=answer["jobs-finished"],
            failed=answer["jobs-failed"],
            cancelled=answer["jobs-cancelled"],
        )
    except (KeyError, TypeError):
        raise FlinkError("what answers there is not Flink") from None


def task_managers(address: str) -> list[TaskManager]:
    """Asks who has registered with the JobManager.

    Raises:
        FlinkError: as `overview`.
    """
    answer = ask(address, "taskmanagers")
    return [
        # `pekko.tcp://flink@host:port/user/rpc/taskmanager_0`
        TaskManager(
            found["id"],
            urlsplit(found["path"]).hostname or "",
            found["slotsNumber"],
            found["freeSlots"],
        )
        for found in answer["taskmanagers"]
    ]


def cancel_job(address: str, name: str) -> bool:
    """Cancels the jobs of a name that have not ended.

    Beam's job server does not: where it is asked to cancel a job, it stops waiting for Flink, and
    the job keeps its slots or waits for some.

    Returns:
        Whether there was one.

    Raises:
        FlinkError: as `overview`.
    """
    return bool(cancel_jobs(address, lambda job: job["name"] == name))


def cancel_jobs(address: str, wanted: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    """Cancels the jobs that have not ended and that a function of name and duration (ms) wants.

    Returns:
        Their names.

    Raises:
        FlinkError: as `overview`.
    """
    jobs = [job for job in ask(address, "jobs/overview")["jobs"] if job["end-time"] < 0]
    found = [job for job in jobs if wanted(job)]
    for job in found:
        ask(address, f"jobs/{job['jid']}?mode=cancel", method="PATCH")
    return [job["name"] for job in found]


def first_exception(address: str, name: str) -> str:
    """What went wrong first in a job, before Flink started its tasks again.

    Args:
        address: `host:port` of the REST endpoint.
        name: the job's; of several with this name, that which started last.

    Returns:
        The stack trace of Java's exception, or nothing: Flink knows no such job, or of no failure.

    Raises:
        FlinkError: as `overview`.
    """
    jobs = [job for job in ask(address, "jobs/overview")["jobs"] if job["name"] == name]
    if not jobs:
        return ""
    job = max(jobs, key=lambda job: job["start-time"])
    history = ask(address, f"jobs/{job['jid']}/exceptions")["exceptionHistory"]["entries"]
    # One entry for each start, with the failure that came to the JobManager's notice first; it may
    # not have been the first to happen.
    found = [one for entry in history for one in (entry, *entry.get("concurrentExceptions", ()))]
    return min(found, key=lambda one: one["timestamp"])["stacktrace"] if found else ""


def ask(address: str, path: str, method: str = "GET") -> Any:
    """Sends one request to the REST endpoint and returns what its JSON holds.

    Raises:
        FlinkError: nobody answers within 5 seconds, or not as Flink does.
    """
    # Never through a proxy, which could not reach an address of this network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(f"http://{address}/{path}", method=method)
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise FlinkError(f"what answers there is not Flink (HTTP {error.code})") from None
    except urllib.error.URLError as error:
        raise FlinkError(f"nobody answers ({_reason(error.reason)})") from None
    except TimeoutError:
        raise FlinkError(f"no answer within {TIMEOUT_SECONDS:.0f} seconds") from None
    except (OSError, ValueError, http.client.HTTPException):  # another protocol, or no JSON
        raise FlinkError("what answers there is not Flink") from None


def _reason(reason: object) -> str:
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return str(reason)
