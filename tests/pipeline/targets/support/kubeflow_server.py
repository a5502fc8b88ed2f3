"""Kubeflow Pipelines' API v2beta1, as the installed client's generated models define it.

Every body that comes in is read into its model and has to be all of it; every answer is a model's
own serialization. What is uploaded has to be a pipelineSpec, by kfp's protos.
"""

from __future__ import annotations

import datetime
import json
import re
from email import message_from_bytes
from types import SimpleNamespace
from typing import Any

import kfp_server_api as api
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from loopback import Answer, Loopback, Request

PREFIX = "/apis/v2beta1"
START = datetime.datetime(2026, 11, 24, 12, 0, tzinfo=datetime.timezone.utc)


class KubeflowServer(Loopback):
    """One installation, of one user.

    Attributes:
        pipelines: by id.
        versions: by id.
        uploaded: bytes of each version, by its id.
        runs: the runs that were started.
        version: what its image is built as.
        polls: what the run is at each question, from the first; the last one stays.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.client = api.ApiClient()
        self.pipelines: dict[str, api.V2beta1Pipeline] = {}
        self.versions: dict[str, api.V2beta1PipelineVersion] = {}
        self.uploaded: dict[str, bytes] = {}
        self.experiments: dict[str, api.V2beta1Experiment] = {}
        self.runs: dict[str, api.V2beta1Run] = {}
        self.polls: list[api.V2beta1Run] = []
        self.cookie: str | None = None
        self.version = "2.5.0"

    def read(self, body: bytes, kind: str) -> Any:
        """A body as its model; it has to say nothing that the model does not know."""
        model = self.client.deserialize(SimpleNamespace(data=body), kind)
        known = self.client.sanitize_for_serialization(model)
        # An int64 is a text in the model; the server's JSON reader takes a number, too.
        said = {k: str(v) if known.get(k) == str(v) else v for k, v in json.loads(body).items()}
        assert known == said
        return model

    def say(self, model: Any) -> Answer:
        """A model as an answer."""
        return Answer(self.client.sanitize_for_serialization(model))

    def _answer(self, request: Request) -> Answer:
        if self.cookie and request.headers.get("cookie") != self.cookie:
            return error(401, "Request not authenticated")
        for pattern, method in ROUTES.items():
            verb, path = pattern.split(" ")
            found = re.fullmatch(PREFIX + path, request.path)
            if found and verb == request.method:
                return method(self, request, *found.groups())
        return error(404, f"Not Found: {request.path}")

    def healthz(self, request: Request) -> Answer:
        # As backend/src/apiserver/main.go writes it: more than the client's model has.
        known = {"commit_sha": "unknown", "tag_name": self.version, "multi_user": False}
        return Answer(known)

    def list_pipelines(self, request: Request) -> Answer:
        found = [p for p in self.pipelines.values() if matches(request, p.display_name)]
        return self.say(api.V2beta1ListPipelinesResponse(pipelines=found or None))

    def upload(self, request: Request) -> Answer:
        if any(p.display_name == request.query["name"] for p in self.pipelines.values()):
            return error(409, "Already exist error: pipeline " + request.query["name"])
        name = f"pipeline-{len(self.pipelines) + 1}"
        self.pipelines[name] = api.V2beta1Pipeline(
            pipeline_id=name,
            display_name=request.query["name"],
            description=request.query.get("description"),
            created_at=START,
        )
        self._version(name, request.query["name"], request)
        return self.say(self.pipelines[name])

    def upload_version(self, request: Request) -> Answer:
        pipeline = request.query["pipelineid"]
        if pipeline not in self.pipelines:
            return error(404, f"Pipeline {pipeline} not found")
        return self.say(self._version(pipeline, request.query["name"], request))

    def _version(self, pipeline: str, name: str, request: Request) -> Any:
        kind = request.headers["content-type"]
        message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + request.body)
        (part,) = message.get_payload()
        assert part.get_param("name", header="content-disposition") == "uploadfile"
        text = part.get_payload(decode=True)
        spec, *platform = yaml.safe_load_all(text)
        json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        for each in platform:
            json_format.ParseDict(each, pipeline_spec_pb2.PlatformSpec())
        version = f"version-{len(self.versions) + 1}"
        self.uploaded[version] = text
        self.versions[version] = api.V2beta1PipelineVersion(
            pipeline_id=pipeline,
            pipeline_version_id=version,
            display_name=name,
            created_at=START + datetime.timedelta(seconds=len(self.versions)),
        )
        return self.versions[version]

    def list_versions(self, request: Request, pipeline: str) -> Answer:
        found = [
            v
            for v in reversed(self.versions.values())
            if v.pipeline_id == pipeline and matches(request, v.display_name)
        ]
        return self.say(api.V2beta1ListPipelineVersionsResponse(pipeline_versions=found or None))

    def list_experiments(self, request: Request) -> Answer:
        found = [e for e in self.experiments.values() if matches(request, e.display_name)]
        return self.say(api.V2beta1ListExperimentsResponse(experiments=found or None))

    def create_experiment(self, request: Request) -> Answer:
        made = self.read(request.body, "V2beta1Experiment")
        made.experiment_id = f"experiment-{len(self.experiments) + 1}"
        self.experiments[made.experiment_id] = made
        return self.say(made)

    def create_run(self, request: Request) -> Answer:
        run = self.read(request.body, "V2beta1Run")
        assert run.experiment_id in self.experiments
        reference = run.pipeline_version_reference
        version = self.versions.get(reference.pipeline_version_id)
        if version is None or version.pipeline_id != reference.pipeline_id:
            return error(404, f"PipelineVersion {reference.pipeline_version_id} not found")
        run.run_id = f"run-{len(self.runs) + 1}"
        run.state = api.V2beta1RuntimeState.PENDING
        self.runs[run.run_id] = run
        return self.say(run)

    def get_run(self, request: Request, run: str) -> Answer:
        if run not in self.runs:
            return error(404, f"Run {run} not found")
        now = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
        now.run_id = run
        return self.say(now)


ROUTES = {
    "GET /healthz": KubeflowServer.healthz,
    "GET /pipelines": KubeflowServer.list_pipelines,
    "POST /pipelines/upload": KubeflowServer.upload,
    "POST /pipelines/upload_version": KubeflowServer.upload_version,
    "GET /pipelines/([^/]+)/versions": KubeflowServer.list_versions,
    "GET /experiments": KubeflowServer.list_experiments,
    "POST /experiments": KubeflowServer.create_experiment,
    "POST /runs": KubeflowServer.create_run,
    "GET /runs/([^/:]+)": KubeflowServer.get_run,
}


def matches(request: Request, name: str) -> bool:
    """Whether the request's filter is true of a display name."""
    if "filter" not in request.query:
        return True
    (predicate,) = json.loads(request.query["filter"])["predicates"]
    assert predicate["key"] == "display_name"
    assert predicate["operation"] in (1, "EQUALS")
    return predicate["stringValue"] == name


def error(status: int, words: str) -> Answer:
    """As the server's gateway says what is wrong."""
    return Answer({"error": words, "code": 5, "message": words, "details": []}, status)


def run_now(state: str, tasks: dict[str, str | tuple[str, str]] | None = None, error: str = ""):
    """A run as the server's agent writes it from Argo's nodes.

    Args:
        state: of the run.
        tasks: name -> state, or state and the state of its container, beside its own.
        error: the run's.
    """
    details = [_detail("root-driver", 1, "SUCCEEDED"), _detail("root", 2, "RUNNING")]
    for index, (name, states) in enumerate((tasks or {}).items()):
        own, inner = states if isinstance(states, tuple) else (states, states)
        number = 100 + 10 * index
        driver = _detail(f"{name}-driver", number, "SUCCEEDED")
        task = _detail(name, number + 1, own, seconds=60.0 * (index + 1))
        executor = _detail("executor", number + 2, inner, pod="system-container-impl-")
        task.child_tasks = [api.PipelineTaskDetailChildTask(pod_name=f"taxi-x7-{number + 2}")]
        details += [driver, task, executor]
    # GooglerpcStatus, and GoogleRpcStatus in later clients.
    status = getattr(api, api.V2beta1Run.openapi_types["error"])
    return api.V2beta1Run(
        state=state,
        run_details=api.V2beta1RunDetails(task_details=details),
        error=status(code=2, message=error) if error else None,
    )


def _detail(name: str, number: int, state: str, *, pod: str = "", seconds: float = 0.0):
    ended = state in ("SUCCEEDED", "FAILED")
    never = datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc)
    return api.V2beta1PipelineTaskDetail(
        display_name=name,
        state=state,
        pod_name=f"taxi-x7-{pod}{number}",
        start_time=START,
        end_time=START + datetime.timedelta(seconds=seconds) if ended else never,
    )
