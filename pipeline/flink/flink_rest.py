"""What a Flink cluster reports over REST: slots, jobs, TaskManagers and exceptions."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 5.0

Job = TypedDict(
    "Job", {"jid": str, "name": str, "start-time": int, "end-time": int, "duration": int}
)
"""One job; times in milliseconds, `end-time` -1 until it ends."""


class FlinkError(Exception):
    """No answer, or none of Flink."""


class Overview(NamedTuple):
    """Numbers of TaskManagers, slots, and jobs by state."""

    task_managers: int
    slots: int
    free_slots: int
    running: int
    finished: int
    failed: int
    cancelled: int


def overview(address: str) -> Overview:
    """Return the numbers of TaskManagers, slots and jobs.

    Args:
        address: `host:port` of the REST endpoint.

    Raises:
        FlinkError: No answer within 5 seconds, or none of Flink.
    """
    answer = ask(address, "overview")
    try:
        return Overview(
            *(answer[name] for name in ("taskmanagers", "slots-total", "slots-available")),
            *(answer[f"jobs-{state}"] for state in ("running", "finished", "failed", "cancelled")),
        )
    except (KeyError, TypeError):
        raise FlinkError("what answers there is not Flink") from None


def task_manager_hosts(address: str) -> list[str]:
    """Return the host of each TaskManager.

    Raises:
        FlinkError: As in `overview`.
    """
    # `pekko.tcp://flink@host:port/user/rpc/taskmanager_0`
    managers = ask(address, "taskmanagers")["taskmanagers"]
    return [urlsplit(manager["path"]).hostname or "" for manager in managers]


def cancel_job(address: str, name: str) -> bool:
    """Cancel the running jobs of a name, and return whether there was one.

    Beam's job server does not: if it is asked to cancel a job, it stops waiting for Flink, and the
    job keeps its slots or waits for some.

    Raises:
        FlinkError: As in `overview`.
    """
    return cancel_jobs(address, lambda job: job["name"] == name)


def cancel_jobs(address: str, wanted: Callable[[Job], bool]) -> bool:
    """Cancel the running jobs that a function selects, and return whether there was one.

    Raises:
        FlinkError: As in `overview`.
    """
    found = [job for job in jobs(address) if job["end-time"] < 0 and wanted(job)]
    for job in found:
        ask(address, f"jobs/{job['jid']}?mode=cancel", method="PATCH")
    return bool(found)


def first_exception(address: str, name: str) -> str:
    """Return the first failure of a job, before Flink restarted its tasks.

    Args:
        address: `host:port` of the REST endpoint.
        name: Name of the job; of several with this name, the one that started last is used.

    Returns:
        The stack trace of Java's exception; "" if Flink knows no such job, or no failure of it.

    Raises:
        FlinkError: As in `overview`.
    """
    named = [job for job in jobs(address) if job["name"] == name]
    if not named:
        return ""
    job = max(named, key=lambda job: job["start-time"])
    history = ask(address, f"jobs/{job['jid']}/exceptions")["exceptionHistory"]["entries"]
    # One entry for each start, with the failure that came to the JobManager's notice first; it may
    # not have been the first to happen.
    found = [one for entry in history for one in (entry, *entry.get("concurrentExceptions", ()))]
    return min(found, key=lambda one: one["timestamp"])["stacktrace"] if found else ""


def jobs(address: str) -> list[Job]:
    """Return all jobs that Flink remembers.

    Raises:
        FlinkError: As in `overview`.
    """
    return ask(address, "jobs/overview")["jobs"]


def ask(address: str, path: str, method: str = "GET") -> Any:
    """Send one request to the REST endpoint and return its JSON.

    Raises:
        FlinkError: No answer within 5 seconds, or none of Flink.
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
        reason = getattr(error.reason, "strerror", None) or str(error.reason)
        raise FlinkError(f"nobody answers ({reason.lower()})") from None
    except TimeoutError:
        raise FlinkError(f"no answer within {TIMEOUT_SECONDS:.0f} seconds") from None
    except (OSError, ValueError, http.client.HTTPException):  # another protocol, or no JSON
        raise FlinkError("what answers there is not Flink") from None
