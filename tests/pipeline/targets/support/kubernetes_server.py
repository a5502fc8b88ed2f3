"""An API server of Kubernetes with a Training Operator, whose pods only say that they run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
from loopback import Answer, Loopback, Request

SCHEMA = json.loads(Path(__file__).with_name("tfjob_schema.json").read_text())
NAMESPACE = "team"
LAUNCHER = "taxi-x7-impl-1"
JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class KubernetesServer(Loopback):
    """One namespace.

    Attributes:
        codes: the end of each pod of a job, by its role and number; none: it runs on.
        jobs: name -> TFJob.
        created: each manifest that was accepted.
        looks: how often a job was looked at; its pods start at the second look, end at the fifth.
        launcher_phase: of the pod that creates jobs.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.codes: dict[str, int] = {"chief-0": 0, "worker-0": 0}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.looks = 0
        self.launcher_phase = "Running"

    def add(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Creates a job."""
        jsonschema.validate(manifest, SCHEMA)
        name = manifest["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", name), name
        self.created.append(manifest)
        self.jobs[name] = {**manifest, "status": {}}
        return self.jobs[name]

    def _answer(self, request: Request) -> Answer:
        if request.path == JOBS and request.method == "POST":
            return Answer(self.add(json.loads(request.body)), 201)
        if request.path == JOBS:
            key, value = request.query["labelSelector"].split("=")
            found = [j for j in self.jobs.values() if j["metadata"]["labels"].get(key) == value]
            return Answer({"items": found})
        if request.path.startswith(f"{JOBS}/"):
            return self._job(request, request.path.removeprefix(f"{JOBS}/"))
        if request.path == PODS:
            job = request.query["labelSelector"].removeprefix("training.kubeflow.org/job-name=")
            return Answer({"items": [self._pod(job, pod) for pod in ("chief-0", "worker-0")]})
        name, _, part = request.path.removeprefix(f"{PODS}/").partition("/")
        if part == "log":
            # At each look there is one line more. A connection that ends early gives what is there.
            lines = [f"2026-11-24T12:00:0{i}.000000000Z line {i}\n" for i in range(self.looks)]
            return Answer("".join(lines[:3]).encode(), kind="text/plain")
        assert name == LAUNCHER
        metadata = {"name": LAUNCHER, "uid": "uid-of-launcher"}
        spec = {"serviceAccountName": "default-editor", "containers": [{"name": "main"}]}
        return Answer(
            {"metadata": metadata, "spec": spec, "status": {"phase": self.launcher_phase}}
        )

    def _pod(self, job: str, pod: str) -> dict[str, Any]:
        phase, state = "Running", {"running": {}}
        code = self.codes.get(pod)
        if self.looks < 2:
            phase = "Pending"
            state = {"waiting": {"reason": "ContainerCreating", "message": ""}}
        elif self.looks > 4 and code is not None:
            phase = "Failed" if code else "Succeeded"
            state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        known = {"name": "tensorflow", "image": "x", "imageID": "x", "ready": False}
        status = {**known, "restartCount": 0, "state": state}
        return {
            "metadata": {"name": f"{job}-{pod}", "uid": pod},
            "spec": {"containers": [{"name": "tensorflow"}]},
            "status": {"phase": phase, "containerStatuses": [status]},
        }

    def _job(self, request: Request, name: str) -> Answer:
        if name not in self.jobs:
            return Answer({"message": "not found"}, 404)
        if request.method == "DELETE":
            return Answer(self.jobs.pop(name))
        self.looks += 1
        conditions = [{"type": "Running", "status": "True"}]
        if self.looks > 4 and any(self.codes.values()):
            message = f"TFJob {name} has failed because 1 replica(s) failed."
            conditions.append({"type": "Failed", "status": "True", "message": message})
        elif self.looks > 4 and self.codes.get("chief-0") == 0:
            conditions.append({"type": "Succeeded", "status": "True"})
        return Answer({**self.jobs[name], "status": {"conditions": conditions}})
