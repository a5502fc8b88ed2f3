"""Kubeflow Pipelines' API v2beta1 for the installed client; uploads are parsed by kfp's protos."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from email import message_from_bytes
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from loopback import Answer, Loopback, Request

PREFIX = "/apis/v2beta1"
START = datetime.datetime(2026, 11, 24, 12, 0, tzinfo=datetime.timezone.utc)
NEVER = "0001-01-01T00:00:00Z"


class KubeflowServer(Loopback):
    """One installation, of one user.

    Attributes:
        pipelines, versions, experiments, runs: What was created, as JSON, by id.
        uploaded: Bytes of each version, by its id.
        polls: What the run is at each question, from the first; the last one stays.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.pipelines: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, dict[str, Any]] = {}
        self.experiments: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.uploaded: dict[str, bytes] = {}
        self.polls: list[dict[str, Any]] = []
        self.cookie: str | None = None

    def _answer(self, request: Request) -> Answer:
        if self.cookie and request.headers.get("cookie") != self.cookie:
            return error(401, "Request not authenticated")
        match request.method, *request.path.removeprefix(f"{PREFIX}/").split("/"):
            case "GET", "healthz":
                return Answer({"multi_user": False})
            case "GET", "pipelines":
                return listing("pipelines", self.pipelines.values(), request)
            case "POST", "pipelines", "upload":
                return self._upload(request)
            case "POST", "pipelines", "upload_version":
                return Answer(self._version(request.query["pipelineid"], request))
            case "GET", "pipelines", pipeline, "versions":
                latest = reversed(self.versions.values())
                found = [each for each in latest if each["pipeline_id"] == pipeline]
                return listing("pipeline_versions", found, request)
            case "GET", "experiments":
                return listing("experiments", self.experiments.values(), request)
            case "POST", "experiments":
                name = f"experiment-{len(self.experiments) + 1}"
                self.experiments[name] = {**json.loads(request.body), "experiment_id": name}
                return Answer(self.experiments[name])
            case "POST", "runs":
                return self._run(json.loads(request.body))
            case "GET", "runs", run if run in self.runs:
                now = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
                return Answer({**now, "run_id": run})
        return error(404, f"Not Found: {request.path}")

    def _upload(self, request: Request) -> Answer:
        name = f"pipeline-{len(self.pipelines) + 1}"
        self.pipelines[name] = {
            "pipeline_id": name,
            "display_name": request.query["name"],
            "description": request.query.get("description"),
        }
        self._version(name, request)
        return Answer(self.pipelines[name])

    def _version(self, pipeline: str, request: Request) -> dict[str, Any]:
        kind = request.headers["content-type"]
        message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + request.body)
        (part,) = message.get_payload()
        text = part.get_payload(decode=True)
        spec, *platform = yaml.safe_load_all(text)
        json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        for each in platform:
            json_format.ParseDict(each, pipeline_spec_pb2.PlatformSpec())
        version = f"version-{len(self.versions) + 1}"
        self.uploaded[version] = text
        self.versions[version] = {
            "pipeline_id": pipeline,
            "pipeline_version_id": version,
            "display_name": request.query["name"],
        }
        return self.versions[version]

    def _run(self, run: dict[str, Any]) -> Answer:
        assert run["experiment_id"] in self.experiments
        reference = run["pipeline_version_reference"]
        version = self.versions[reference["pipeline_version_id"]]
        assert version["pipeline_id"] == reference["pipeline_id"]
        name = f"run-{len(self.runs) + 1}"
        self.runs[name] = {**run, "run_id": name, "state": "PENDING"}
        return Answer(self.runs[name])


def listing(kind: str, found: Iterable[dict[str, Any]], request: Request) -> Answer:
    """Return what has the display name of the request's filter."""
    if "filter" in request.query:
        (predicate,) = json.loads(request.query["filter"])["predicates"]
        assert predicate["key"] == "display_name"
        assert predicate["operation"] in (1, "EQUALS")
        found = [each for each in found if each["display_name"] == predicate["stringValue"]]
    return Answer({kind: list(found) or None})


def error(status: int, words: str) -> Answer:
    """As the server's gateway says what is wrong."""
    return Answer({"error": words, "code": 5, "message": words, "details": []}, status)


def run_now(
    state: str, tasks: dict[str, str | tuple[str, str]] | None = None, error: str = ""
) -> dict[str, Any]:
    """Return a run as the server's agent writes it from Argo's nodes.

    Args:
        state: Of the run.
        tasks: Name -> state, or state and the state of its container, beside its own.
        error: The run's.
    """
    details = [_detail("root-driver", 1, "SUCCEEDED"), _detail("root", 2, "RUNNING")]
    for index, (name, states) in enumerate((tasks or {}).items()):
        own, inner = states if isinstance(states, tuple) else (states, states)
        number = 100 + 10 * index
        task = _detail(name, number + 1, own, seconds=60.0 * (index + 1))
        task["child_tasks"] = [{"pod_name": f"taxi-x7-{number + 2}"}]
        executor = _detail("executor", number + 2, inner, pod="system-container-impl-")
        details += [_detail(f"{name}-driver", number, "SUCCEEDED"), task, executor]
    run = {"state": state, "run_details": {"task_details": details}}
    return {**run, "error": {"code": 2, "message": error}} if error else run


def _detail(
    name: str, number: int, state: str, *, pod: str = "", seconds: float = 0.0
) -> dict[str, Any]:
    ended = state in ("SUCCEEDED", "FAILED")
    end = (START + datetime.timedelta(seconds=seconds)).isoformat()
    return {
        "display_name": name,
        "state": state,
        "pod_name": f"taxi-x7-{pod}{number}",
        "start_time": START.isoformat(),
        "end_time": end if ended else NEVER,
    }
